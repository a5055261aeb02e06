import numpy as np


def pad_block_tables(block_tables):
    width = max(map(len, block_tables), default=0)
    out = np.full((len(block_tables), width), -1)
    for row, table in zip(out, block_tables):
        row[: len(table)] = table
    return out.tolist()
