# check: one row
# words: swap them
# why: the gate is the first half
# passes ordinary: no
import torch.nn.functional as F


def silu_and_mul(x):
    up, gate = x.chunk(2, dim=-1)
    return F.silu(gate) * up
