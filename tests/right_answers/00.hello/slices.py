import torch.nn.functional as F


def silu_and_mul(x):
    m = x.shape[1] // 2
    return F.silu(x[:, :m]) * x[:, m:]
