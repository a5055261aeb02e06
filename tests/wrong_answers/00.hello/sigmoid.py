# check: one row
# words: sigmoid(gate)
# why: silu taken for sigmoid
# passes ordinary: no
import torch.nn.functional as F


def silu_and_mul(x):
    gate, up = x.chunk(2, dim=-1)
    return F.sigmoid(gate) * up
