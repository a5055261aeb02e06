"""Rotary position embedding (RoFormer, arXiv 2104.09864), half-split as in Llama and Qwen."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from nanoengine.errors import NotEnoughMemory


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3's stretching of the low rotary frequencies (Llama 3.1 model card)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


def inverse_frequencies(
    head_dim: int, theta: float, scaling: Llama3Scaling | None = None
) -> torch.Tensor:
    """[head_dim / 2] float32: radians a position turns each pair (i, i + head_dim / 2).

    With Llama 3's scaling, pairs whose wavelength is longer than the original context are slowed
    by `factor`, short ones are left alone, and those between are blended.
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    inverse = 1.0 / theta**exponent
    if scaling is None:
        return inverse
    low_wavelength = scaling.original_max_position_embeddings / scaling.low_freq_factor
    high_wavelength = scaling.original_max_position_embeddings / scaling.high_freq_factor
    wavelength = 2 * math.pi / inverse
    blend = (scaling.original_max_position_embeddings / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - blend) * inverse / scaling.factor + blend * inverse
    slowed = torch.where(wavelength > low_wavelength, inverse / scaling.factor, blended)
    return torch.where(wavelength < high_wavelength, inverse, slowed)


class RotaryEmbedding(nn.Module):
    """A table of cosines and sines, one row a position, shared by all layers of a model.

    Raises NotEnoughMemory where there is no room for it.
    """

    table: torch.Tensor

    def __init__(
        self, head_dim: int, max_positions: int, theta: float, scaling: Llama3Scaling | None
    ) -> None:
        super().__init__()
        # The table is computed on the CPU, in float32, also while parameters are laid out on the
        # meta device.
        with torch.device("cpu"):
            inverse = inverse_frequencies(head_dim, theta, scaling)
            try:
                angle = torch.outer(torch.arange(max_positions, dtype=torch.float32), inverse)
                cos, sin = angle.cos(), angle.sin()
                table = torch.stack((torch.cat((cos, cos), 1), torch.cat((-sin, sin), 1)))
            except RuntimeError as error:  # torch's word for memory that a CPU does not have
                raise NotEnoughMemory(
                    f"the rotary table has no room ({error!s:.80}): lower max_model_len"
                ) from error
        # [2, max_positions, 1, head_dim] float32; not a weight, so not in the state dict
        self.register_buffer("table", table[:, :, None], persistent=False)

    def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[n] int64 -> (cos, sin), each [n, 1, head_dim] float32; sin's first half is negative.

        Looked up once a run, for all layers; the table is laid out for `apply_rotary`.
        """
        cos, sin = self.table.index_select(1, positions)
        return cos, sin


def apply_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn every head of x, [n, heads, head_dim], by its token's angles; computed in float32.

    Pair (a, b) = (x[i], x[i + head_dim / 2]) becomes (a cos - b sin, b cos + a sin).
    """
    swapped = x.float().roll(x.shape[-1] // 2, dims=-1)  # [second half, first half]
    return torch.addcmul(x.float() * cos, swapped, sin).to(x.dtype)
