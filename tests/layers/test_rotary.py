"""Rotary embedding: transformers' frequencies, and turns that depend on distance alone."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoengine.errors import NotEnoughMemory
from nanoengine.layers.rotary import (
    Llama3Scaling,
    RotaryEmbedding,
    apply_rotary,
    inverse_frequencies,
)


@given(
    dim=st.sampled_from([2, 8, 24, 64, 128]),
    theta=st.sampled_from([100.0, 500.0, 1e4, 5e5, 1e6]),
    factor=st.sampled_from([2.0, 8.0, 32.0]),
    low=st.sampled_from([1.0, 2.0]),
    high=st.sampled_from([3.0, 4.0]),
    original=st.sampled_from([64, 1024, 8192]),
)
@settings(max_examples=60, deadline=None)
def test_llama3_scaling_equals_transformers(
    dim: int, theta: float, factor: float, low: float, high: float, original: int
) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }
    config = LlamaConfig(
        hidden_size=dim, num_attention_heads=1, head_dim=dim, rope_parameters=rope,
        max_position_embeddings=original * 4,
    )  # fmt: skip
    theirs, attention_factor = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    ours = inverse_frequencies(dim, theta, Llama3Scaling(factor, low, high, original))
    assert attention_factor == 1.0
    assert torch.allclose(ours, theirs, rtol=1e-6)


def test_default_frequencies() -> None:
    want = [10000.0 ** (-i / 4) for i in range(4)]
    assert torch.allclose(inverse_frequencies(8, 10000.0), torch.tensor(want))


def turn(x: torch.Tensor, positions: list[int], dim: int = 8) -> torch.Tensor:
    """x, [n, heads, dim], at these positions."""
    rotary = RotaryEmbedding(dim, 4096, 10000.0, None)
    return apply_rotary(x, *rotary(torch.tensor(positions)))


def test_each_pair_is_a_rotation_by_position_times_frequency() -> None:
    x = torch.randn(1, 2, 8, generator=torch.Generator().manual_seed(0))
    out = turn(x, [3])
    for i, frequency in enumerate(inverse_frequencies(8, 10000.0).tolist()):
        cos, sin = math.cos(3 * frequency), math.sin(3 * frequency)
        a, b = x[0, :, i], x[0, :, i + 4]  # half-split: the pair is half a head apart
        assert torch.allclose(out[0, :, i], a * cos - b * sin, atol=1e-6)
        assert torch.allclose(out[0, :, i + 4], b * cos + a * sin, atol=1e-6)


@pytest.mark.parametrize("shift", [0, 1, 100, 4000])
def test_scores_depend_on_the_distance_alone(shift: int) -> None:
    q, k = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    base = (turn(q, [9]) * turn(k, [4])).sum()
    moved = (turn(q, [9 + shift]) * turn(k, [4 + shift])).sum()
    assert torch.allclose(base, moved, atol=1e-3)


def test_position_zero_and_the_input_stay_as_they_are() -> None:
    x = torch.randn(1, 2, 8)
    before = x.clone()
    assert torch.equal(turn(x, [0]), x)
    turn(x, [5])
    assert torch.equal(x, before)


def test_half_precision_is_turned_in_float32() -> None:
    x = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(turn(x, [3001]), turn(x.float(), [3001]).bfloat16())


def test_the_table_is_float32_whatever_the_default_dtype() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        table = RotaryEmbedding(8, 4096, 10000.0, None).table
    finally:
        torch.set_default_dtype(torch.float32)
    assert table.dtype == torch.float32
    assert torch.equal(table, RotaryEmbedding(8, 4096, 10000.0, None).table)


def test_a_table_without_room_says_what_to_lower() -> None:
    with pytest.raises(NotEnoughMemory, match="lower max_model_len"):
        RotaryEmbedding(128, 10**15, 1e4, None)
