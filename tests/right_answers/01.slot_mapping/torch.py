# remark: a Tensor
import torch


def slot_mapping(block_table, start, end, block_size):
    positions = torch.arange(start, end)
    table = torch.tensor(block_table)
    return table[positions // block_size] * block_size + positions % block_size
