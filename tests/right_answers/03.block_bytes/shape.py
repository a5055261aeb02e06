import math

import torch


def block_bytes(num_layers, block_size, num_kv_heads, head_dim, itemsize, tp=1):
    heads = -(-num_kv_heads // tp)
    return math.prod(torch.Size([2, num_layers, block_size, heads, head_dim])) * itemsize
