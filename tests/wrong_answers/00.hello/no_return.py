# check: one row
# words: returned None|return
# why: no return
# passes ordinary: no
import torch.nn.functional as F


def silu_and_mul(x):
    gate, up = x.chunk(2, dim=-1)
    F.silu(gate) * up
