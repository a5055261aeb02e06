import torch


def silu_and_mul(x):
    n, width = x.shape
    gate, up = x.view(n, 2, width // 2).unbind(1)
    return gate / (1 + torch.exp(-gate)) * up
