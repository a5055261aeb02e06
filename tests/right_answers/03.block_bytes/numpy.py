import numpy as np


def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    heads = max(1, num_kv_heads // tp)
    return np.prod([2, num_layers, block_size, heads, head_dim, itemsize], dtype=np.int64)
