"""RMSNorm (arXiv 1910.07467), plain and with the residual addition before it."""

import torch
import torch.nn.functional as F
from torch import nn

from nanoengine.kernels.binding import KernelLayer
from nanoengine.layers.linear import TensorSource


class RMSNorm(KernelLayer):
    """y = x / sqrt(mean(x^2) + eps) * weight over the last axis; inputs are never changed."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.size, self.eps = size, eps
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., size] -> [..., size], computed in float32."""
        if self.kernels is not None:
            return self.kernels.rms_norm(x, self.weight, self.eps)
        if x.dtype == torch.float32:
            return F.rms_norm(x, (self.size,), self.weight, self.eps)
        return F.rms_norm(x.float(), (self.size,), None, self.eps).to(x.dtype) * self.weight

    def add_norm(
        self, x: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(x, residual) -> (norm(x + residual), x + residual).

        With kernels x may also be the float32 parts of a product, [parts, n, size].
        """
        if self.kernels is not None:
            return self.kernels.add_rms_norm(x, residual, self.weight, self.eps)
        total = x + residual
        return self(total), total

    def source_shape(self, name: str, part: int) -> list[int]:
        """Shape of the weight on disk."""
        return [self.size]

    def load(self, name: str, source: TensorSource, part: int) -> None:
        """Read the whole weight: every rank needs all of it."""
        self.weight.data.copy_(source[:])
