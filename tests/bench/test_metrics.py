"""Rates and waiting times, by hand and from a real engine."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoengine.bench.metrics import (
    RunEvent,
    latency,
    percentile,
    recorded_events,
    throughput,
)
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams


def prefill(start: float, end: float, tokens: int, *ids: str) -> RunEvent:
    return RunEvent(True, start, end, tokens, ids)


def decode(start: float, end: float, *ids: str) -> RunEvent:
    return RunEvent(False, start, end, len(ids), ids)


def test_the_example_of_the_docstring() -> None:
    events = [prefill(0.0, 1.0, 100, "a", "b")]
    events += [decode(1.0 + i / 2, 1.5 + i / 2, "a", "b") for i in range(4)]
    rates = throughput(events)
    assert rates.output_tok_s == pytest.approx(10 / 3)
    assert rates.prefill_tok_s == pytest.approx(100)
    assert rates.decode_tok_s == pytest.approx(4)


def test_a_chunk_inside_a_prompt_gives_no_token() -> None:
    rates = throughput([prefill(0.0, 1.0, 50), prefill(1.0, 2.0, 10, "a")])
    assert rates.output_tok_s == pytest.approx(0.5)
    assert rates.prefill_tok_s == pytest.approx(30)
    assert rates.decode_tok_s == 0.0


def test_overlapping_runs_count_no_second_twice_and_gaps_count_for_the_whole() -> None:
    # the second is launched at 0.1 but runs only after the first; then the host waits a second
    events = [decode(0.0, 1.0, "a"), decode(0.1, 2.0, "a"), decode(3.0, 4.0, "a")]
    rates = throughput(events)
    assert rates.decode_tok_s == pytest.approx(3 / 3)
    assert rates.output_tok_s == pytest.approx(3 / 4)


def test_nothing_ran() -> None:
    assert throughput([]) == (0.0, 0.0, 0.0)
    assert latency([], 0.0) == ([], [])
    assert percentile([], 50) == 0.0


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.floats(0.01, 9), st.floats(0, 1))),
    st.floats(0.1, 10),
)
def test_rates_scale_with_the_clock(
    runs: list[tuple[bool, int, float, float]], factor: float
) -> None:
    events, clock = [], 0.0
    for is_prefill, rows, seconds, gap in runs:
        ids = tuple(map(str, range(rows)))
        events.append(RunEvent(is_prefill, clock + gap, clock + gap + seconds, rows, ids))
        clock += gap + seconds
    slow = [e._replace(start=e.start * factor, end=e.end * factor) for e in events]
    for rate, slower in zip(throughput(events), throughput(slow), strict=True):
        assert slower * factor == pytest.approx(rate, rel=1e-6)


def test_waiting_times() -> None:
    events = [prefill(0.5, 1.0, 5, "a"), prefill(1.0, 1.5, 5, "b")]
    events += [decode(0.0, t, "a") for t in (1.5, 2.0, 2.5, 3.0)]
    found = latency(events, submitted=0.25)
    assert found.time_to_first_token == pytest.approx([0.75, 1.25])
    assert found.time_per_output_token == pytest.approx([0.5])  # b had a single token


def test_percentiles() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([4.0], 99) == 4.0
    assert percentile([float(i) for i in range(101)], 99) == pytest.approx(99.0)


@pytest.mark.parametrize("overlap", [False, True])
def test_events_of_an_engine_add_up(
    overlap: bool, checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM]
) -> None:
    llm = make_llm(checkpoint("qwen3"), overlap=overlap, max_num_batched_tokens=16)
    prompts = [[5] * 20, [6] * 9, [7]]
    params = [SamplingParams(max_tokens=n, ignore_eos=True, seed=0) for n in (4, 1, 6)]
    with recorded_events(llm) as events:
        llm.generate(prompts, params, use_tqdm=False)
    assert llm.engine.on_step is None
    assert sum(e.num_tokens for e in events if e.is_prefill) == 30
    assert sum(len(e.request_ids) for e in events) == 4 + 1 + 6
    assert all(e.start <= e.end for e in events)
    assert len(latency(events, events[0].start).time_per_output_token) == 2
