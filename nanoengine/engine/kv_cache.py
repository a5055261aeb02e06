"""How many KV blocks fit, and one big tensor that is carved into every layer's cache."""

import math

import torch
from torch import nn

from nanoengine.errors import NotEnoughMemory
from nanoengine.layers.attention import Attention


def block_bytes(
    num_layers: int, block_size: int, num_kv_heads: int, head_dim: int, itemsize: int, tp: int = 1
) -> int:
    """Bytes of one KV block on one rank: K and V of `block_size` tokens in every layer.

    tp divides the kv heads; a rank keeps at least one. Qwen3-0.6B in bfloat16 takes 28 MiB:

    >>> block_bytes(num_layers=28, block_size=256, num_kv_heads=8, head_dim=128, itemsize=2)
    29360128
    """
    return 2 * num_layers * block_size * max(1, num_kv_heads // tp) * head_dim * itemsize


def num_kvcache_blocks(
    total: int,
    used: int,
    peak: int,
    current: int,
    block_bytes: int,
    utilization: float,
    reserve: int = 0,
) -> int:
    """Blocks that fit beside the weights and one more activation peak.

    All sizes in bytes; `peak` and `current` are the allocator's after a warm-up run, `used` is
    the driver's view of the whole card (other processes included), `reserve` stays free for what
    is allocated later (graphs, sampling).

    >>> num_kvcache_blocks(8 << 30, 2 << 30, 1800 << 20, 1300 << 20, 28 << 20, 0.9)
    172

    Raises NotEnoughMemory, naming every term, when not even one block fits.
    """
    budget = int(total * utilization) - used - (peak - current) - reserve
    if budget < block_bytes:
        raise NotEnoughMemory(
            f"no KV block of {_mib(block_bytes)} fits: {_mib(total)} in all x {utilization} "
            f"- {_mib(used)} used - ({_mib(peak)} peak - {_mib(current)} current) "
            f"- {_mib(reserve)} reserve = {_mib(budget)}; free memory on the device, raise "
            "the utilization, or lower max_num_batched_tokens"
        )
    return budget // block_bytes


def allocate_kv_cache(
    num_layers: int,
    num_blocks: int,
    block_size: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """The whole cache: [2, layers, blocks, block_size, kv_heads, head_dim]; dim 0 is K, V.

    Raises NotEnoughMemory, with the size, when the device has not enough.
    """
    shape = (2, num_layers, num_blocks, block_size, num_kv_heads, head_dim)
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except RuntimeError as error:
        size = math.prod(shape) * dtype.itemsize
        raise NotEnoughMemory(
            f"{num_blocks} KV blocks of {block_size} tokens take {_mib(size)}, and {device} has no "
            "room for them: lower num_kvcache_blocks, or leave it out"
        ) from error


def bind_kv_cache(model: nn.Module, kv_cache: torch.Tensor) -> None:
    """Give each Attention module, in order, its layer's slices of the one big tensor.

    kv_cache: [2, layers, blocks, block_size, kv_heads, head_dim]. The slices are views: nothing
    is copied, and all layers together use exactly the memory that was counted.

    Raises ValueError when the model has another number of Attention modules than the cache layers.
    """
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    if len(layers) != kv_cache.shape[1]:
        raise ValueError(
            f"the cache has {kv_cache.shape[1]} layers but the model {len(layers)}: "
            "carve it for this model"
        )
    for index, layer in enumerate(layers):
        layer.k_cache, layer.v_cache = kv_cache[0, index], kv_cache[1, index]


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
