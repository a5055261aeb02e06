# check: engine: warm-up
# words: ndarray|.tolist()
# why: an array where a list is extended
# passes ordinary: no
import numpy as np


def slot_mapping(block_table, start, end, block_size):
    positions = np.arange(start, end)
    return np.array(block_table)[positions // block_size] * block_size + positions % block_size
