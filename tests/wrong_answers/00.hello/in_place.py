# check: one row
# words: changed its argument x
# why: silu in place, on a view of x
# passes ordinary: yes
import torch.nn.functional as F


def silu_and_mul(x):
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate, inplace=True).mul(up)
