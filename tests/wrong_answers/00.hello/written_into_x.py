# check: one row
# words: changed its argument x
# why: the product written over the gate
# passes ordinary: yes
import torch.nn.functional as F


def silu_and_mul(x):
    m = x.shape[1] // 2
    x[:, :m] = F.silu(x[:, :m]) * x[:, m:]
    return x[:, :m]
