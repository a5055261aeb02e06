"""The gated activation of the feed-forward block (SwiGLU, arXiv 2002.05202)."""

import torch
import torch.nn.functional as F


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """[n, 2 m] -> [n, m]: silu of the first half times the second half."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up
