"""Random weights instead of files: real work for a benchmark, without a download.

A weight depends on the seed and on its name in a checkpoint alone, so every tensor-parallel rank,
and a peer that is filled by the same function, has the same model.
"""

import zlib
from typing import Any

import torch
from torch import nn

from nanoengine import weights

WEIGHT_STD = 0.02


def random_tensor(
    name: str, shape: list[int], dtype: torch.dtype, device: torch.device, seed: int
) -> torch.Tensor:
    """The weight `name` of a checkpoint: normal with standard deviation 0.02; a norm's gain is 1.

    The same on every call with the same arguments; CPUs and GPUs draw different numbers.
    """
    if name.endswith("norm.weight"):
        return torch.ones(shape, dtype=dtype, device=device)
    # 32 bits: a CPU generator ignores the others
    generator = torch.Generator(device).manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    return torch.empty(shape, dtype=dtype, device=device).normal_(
        std=WEIGHT_STD, generator=generator
    )


class RandomSource:
    """A weight file's tensor that is drawn instead of read."""

    def __init__(
        self, name: str, shape: list[int], dtype: torch.dtype, device: torch.device, seed: int
    ) -> None:
        self._arguments = (name, shape, dtype, device, seed)

    def get_shape(self) -> list[int]:
        """Sizes of the whole tensor."""
        return self._arguments[1]

    def __getitem__(self, index: Any) -> torch.Tensor:
        """The indexed part; the whole is drawn, whatever part is asked for."""
        return random_tensor(*self._arguments)[index]


def draw_weights(model: nn.Module, seed: int) -> None:
    """Fill the engine's model, shard by shard, without a file."""
    for name, (module, param, part) in weights.expected_tensors(model):
        target = getattr(module, param)
        shape = module.source_shape(param, part)
        module.load(param, RandomSource(name, shape, target.dtype, target.device, seed), part)
