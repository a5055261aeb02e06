import numpy as np


def slot_mapping(block_table, start, end, block_size):
    positions = np.arange(start, end)
    slots = np.array(block_table)[positions // block_size] * block_size + positions % block_size
    return slots.tolist()
