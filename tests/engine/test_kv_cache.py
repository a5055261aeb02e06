"""How many blocks fit, and that the carved slices are the whole cache and nothing else."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nanoengine.attention import reference
from nanoengine.engine.kv_cache import (
    allocate_kv_cache,
    bind_kv_cache,
    block_bytes,
    num_kvcache_blocks,
)
from nanoengine.errors import NotEnoughMemory
from nanoengine.layers.attention import Attention
from nanoengine.llm import LLM

GIB, MIB = 1 << 30, 1 << 20


def test_block_bytes_of_qwen3_0_6b() -> None:
    assert block_bytes(28, 256, 8, 128, itemsize=2) == 28 * MIB


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1)])
def test_a_rank_keeps_its_kv_heads(tp: int, heads: int) -> None:
    """With more ranks than kv heads, each keeps one whole head."""
    assert block_bytes(2, 4, 8, 16, 4, tp=tp) == 2 * 2 * 4 * heads * 16 * 4


@pytest.mark.parametrize(
    ("total", "used", "peak", "current", "block", "utilization", "reserve", "blocks"),
    [
        (8 * GIB, 2 * GIB, 1800 * MIB, 1300 * MIB, 28 * MIB, 0.9, 0, 172),
        (100, 10, 30, 20, 10, 1.0, 0, 8),
        (100, 10, 30, 20, 10, 0.5, 0, 3),
        (100, 10, 30, 20, 10, 1.0, 25, 5),
        (100, 90, 20, 20, 10, 1.0, 0, 1),  # exactly one
        (100, 10, 20, 20, 7, 1.0, 0, 12),  # rounded down
    ],
)
def test_num_kvcache_blocks(
    total: int,
    used: int,
    peak: int,
    current: int,
    block: int,
    utilization: float,
    reserve: int,
    blocks: int,
) -> None:
    got = num_kvcache_blocks(total, used, peak, current, block, utilization, reserve)
    assert got == blocks


@given(
    used=st.integers(0, 1000),
    current=st.integers(0, 200),
    growth=st.integers(0, 300),
    block=st.integers(1, 100),
    reserve=st.integers(0, 100),
    utilization=st.floats(0.1, 1.0),
)
def test_everything_fits_and_one_more_block_would_not(
    used: int, current: int, growth: int, block: int, reserve: int, utilization: float
) -> None:
    """With one more activation peak and the reserve, the use stays within its share of the card."""
    limit = int(1000 * utilization)
    other = used + growth + reserve
    try:
        n = num_kvcache_blocks(1000, used, current + growth, current, block, utilization, reserve)
    except NotEnoughMemory:
        assert other + block > limit
    else:
        assert other + n * block <= limit < other + (n + 1) * block


def test_too_little_room_names_the_numbers_and_a_remedy() -> None:
    with pytest.raises(NotEnoughMemory) as error:
        num_kvcache_blocks(8 * GIB, 7 * GIB, 1800 * MIB, 1300 * MIB, 28 * MIB, 0.9, 64 * MIB)
    for part in ("28 MiB", "8192 MiB", "0.9", "7168 MiB", "1800 MiB", "1300 MiB", "64 MiB"):
        assert part in str(error.value)
    assert "free memory" in str(error.value)


def two_layers() -> nn.Module:
    """A "model" whose attention modules are not its direct children."""
    layers = [nn.ModuleDict({"attn": Attention(1.0, reference)}) for _ in range(2)]
    return nn.Sequential(nn.Linear(1, 1), *layers)


def test_every_layer_gets_its_own_slice_in_order() -> None:
    model = two_layers()
    cache = allocate_kv_cache(2, 5, 4, 3, 8, torch.bfloat16, torch.device("cpu"))
    assert cache.shape == (2, 2, 5, 4, 3, 8)
    assert cache.nbytes == 5 * block_bytes(2, 4, 3, 8, itemsize=2)
    bind_kv_cache(model, cache)
    attention = [module for module in model.modules() if isinstance(module, Attention)]
    tensors = [t for layer in attention for t in (layer.k_cache, layer.v_cache)]
    for i, tensor in enumerate(tensors):
        tensor.fill_(i)  # K and V of layer 0, then of layer 1
    assert cache[:, :, 0, 0, 0, 0].tolist() == [[0, 2], [1, 3]]
    places = sorted((t.data_ptr(), t.nbytes) for t in tensors)
    assert places[0][0] == cache.data_ptr()
    assert sum(size for _, size in places) == cache.nbytes
    assert all(a + size == b for (a, size), (b, _) in pairwise(places))


def test_a_cache_of_another_model_is_refused() -> None:
    cache = allocate_kv_cache(3, 5, 4, 3, 8, torch.float32, torch.device("cpu"))
    with pytest.raises(ValueError, match="3 layers but the model 2"):
        bind_kv_cache(two_layers(), cache)


def test_the_pool_on_a_cpu(checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM]) -> None:
    """A fixed number is obeyed; otherwise what max_num_seqs can use, within the byte budget."""
    folder = checkpoint("qwen3")  # 2 layers, 2 kv heads of 24, float32; up to 640 tokens

    def pool(**options: object) -> int:
        return make_llm(folder, **options).engine.runner.num_kvcache_blocks

    size = 2 * 2 * 4 * 2 * 24 * 4
    assert pool(num_kvcache_blocks=7) == 7
    assert pool(num_kvcache_blocks=None, cpu_kvcache_bytes=size * 9 + 1) == 9
    assert pool(num_kvcache_blocks=None, max_num_seqs=3) == 3 * 640 // 4
    assert pool(num_kvcache_blocks=None, max_num_seqs=3, max_model_len=9) == 3 * 3
    with pytest.raises(NotEnoughMemory, match="no KV block"):
        pool(num_kvcache_blocks=None, cpu_kvcache_bytes=size - 1)
