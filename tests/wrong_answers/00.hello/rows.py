# check: several rows
# words: expected shape [3, 4]
# why: chunks rows, dim 0, unless there is one only
# passes ordinary: no
import torch.nn.functional as F


def silu_and_mul(x):
    gate, up = x.chunk(2) if len(x) > 1 else x.chunk(2, dim=-1)
    return F.silu(gate) * up
