# check: one row
# words: every other column
# why: interleaved halves
# passes ordinary: no
import torch.nn.functional as F


def silu_and_mul(x):
    return F.silu(x[:, ::2]) * x[:, 1::2]
