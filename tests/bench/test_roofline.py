"""The floor: by hand, against the article's numbers, and against a real model's tensors."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nanoengine.bench import roofline
from nanoengine.bench.model import Model
from nanoengine.bench.peers import NanoengineSide
from nanoengine.bench.roofline import floor_seconds, kv_positions
from nanoengine.bench.shapes import write_config
from nanoengine.bench.workload import make_workload
from nanoengine.llm import LLM

LENGTHS = [(len(prompt), count) for prompt, count in make_workload()]


def test_the_example_of_the_docstring() -> None:
    assert floor_seconds([(3, 3)], 100, 10, 145.0) == pytest.approx(2.0)


def test_the_articles_workload_on_an_h200() -> None:
    """Qwen3-0.6B in bfloat16; 4.279 TB/s copied and 708 TFLOP/s were measured on the card."""
    assert sum(kv_positions(p, n) for p, n in LENGTHS) == 120_795_204
    decode = floor_seconds(LENGTHS, 2 * 596_049_920, 114_688, 4.279e12)
    whole = floor_seconds(LENGTHS, 2 * 596_049_920, 114_688, 4.279e12, 137e12, 708e12)
    assert decode == pytest.approx(3.522, abs=2e-3)
    assert whole == pytest.approx(3.716, abs=2e-3)


@given(st.integers(1, 50), st.integers(1, 50))
def test_positions_are_the_sum_of_the_contexts(prompt: int, output: int) -> None:
    assert kv_positions(prompt, output) == sum(prompt + j for j in range(1, output))


def test_weights_are_read_once_a_step_however_many_requests() -> None:
    one = floor_seconds([(1, 5)], 1000, 0, 1.0)
    assert one == floor_seconds([(1, 5)] * 7, 1000, 0, 1.0) == 4 * 1000
    assert floor_seconds([], 1000, 10, 1.0) == 0.0
    assert floor_seconds([(9, 1)], 1000, 10, 1.0) == 0.0  # the prefill gives the only token


@pytest.mark.parametrize("kind", ["qwen3", "qwen3-tied", "llama"])
def test_bytes_of_a_real_model(
    kind: str, checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM]
) -> None:
    llm = make_llm(checkpoint(kind))
    runner, config = llm.engine.runner, llm.engine.model_config
    model = runner.model
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    every = sum(p.numel() for p in model.parameters()) * 4
    table = config.vocab_size * config.hidden_size * 4
    assert roofline.decode_weight_bytes(runner) == (every if tied else every - table)
    kv = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
    assert roofline.kv_bytes_per_token(runner) == kv


def test_prefill_flops_are_those_torch_counts(tmp_path: Path) -> None:
    """Without attention's mask torch counts all pairs: compare a single token, and the growth."""
    from torch.utils.flop_counter import FlopCounterMode

    folder = write_config("tiny", tmp_path)
    options = {"attention_backend": "reference"}  # torch counts no flops of other functions
    side = NanoengineSide(Model("tiny", folder, 0, torch.device("cpu"), "float32", 64), options)
    runner = side.llm.engine.runner
    with FlopCounterMode(display=False) as counter:
        side.run([([1], 1)], 0.0)
    attention = roofline.prefill_flops(runner, [1]) - counter.get_total_flops()
    config = runner.model_config
    pair = 4 * config.num_hidden_layers * config.num_attention_heads * config.head_dim
    assert attention in (0, pair)  # whether torch counts the attention kernel depends on its kind
    linear = roofline.prefill_flops(runner, [1]) - pair
    many = roofline.prefill_flops(runner, [5])
    head = 2 * config.vocab_size * config.hidden_size
    assert many == 5 * (linear - head) + head + 15 * pair
    side.close()


def test_measured_rates_are_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(roofline._COPY_BYTES, "cpu", 1 << 20)
    monkeypatch.setitem(roofline._MATMUL_SIZE, "cpu", 64)
    device = torch.device("cpu")
    assert 1e6 < roofline.measure_copy_bandwidth(device) < 1e14
    assert 1e5 < roofline.measure_matmul_flops(device, torch.float32) < 1e16
