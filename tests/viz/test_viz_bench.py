"""The benchmark's pictures: what they state is what the data says."""

import itertools

import pytest

pytest.importorskip("matplotlib")

from hypothesis import given
from hypothesis import strategies as st

from nanoengine.bench.metrics import RunEvent
from nanoengine.viz.bench import benchmark_bars, machine_roof, run_timeline, step_times
from nanoengine.viz.style import FILLING


def result(engine: str, *runs: float) -> dict[str, object]:
    return {"engine": engine, "output_tok_s": {"runs": list(runs), "median": sorted(runs)[1]}}


def test_bars_are_sorted_by_median_and_every_repeat_is_a_circle() -> None:
    picture = benchmark_bars([result("slow", 90, 100, 110), result("fast", 150, 200, 205)], 400.0)
    (ax,) = picture.figure.axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["fast", "slow"]
    circles = [line.get_xdata() for line in ax.lines if line.get_marker() == "o"]
    assert [list(values) for values in circles] == [[150, 200, 205], [90, 100, 110]]
    assert "fast 200 (150 to 205), slow 100 (90 to 110)" in picture.alt
    assert "floor allows 400" in picture.alt


def test_one_result_more_is_one_bar_more() -> None:
    results = [result(f"engine {i}", 10.0 * i, 11.0 * i, 12.0 * i) for i in range(1, 4)]
    bars = [len(benchmark_bars(results[:n]).figure.axes[0].patches) for n in (1, 2, 3)]
    assert bars == [1, 2, 3]


def test_a_timeline_counts_every_second_once() -> None:
    events = [
        RunEvent(True, 5.0, 6.0, 60, ()),
        RunEvent(True, 5.5, 7.0, 40, ("a", "b")),
        RunEvent(False, 6.5, 9.0, 2, ("a", "b")),
    ]
    picture = run_timeline(events)
    (ax,) = picture.figure.axes
    bars = [p for p in ax.patches if p.get_hatch() != FILLING.hatch]
    waits = [p for p in ax.patches if p.get_hatch() == FILLING.hatch]
    assert [(p.get_x(), p.get_width()) for p in bars] == [(0.0, 1.0), (1.0, 1.0), (2.0, 2.0)]
    assert [(p.get_x(), p.get_width()) for p in waits] == [(0.5, 0.5), (1.5, 0.5)]
    assert "2 prefill and 1 decode runs over 4 s gave 4 new tokens, 2 of them in" in picture.alt


def test_labels_of_short_runs_do_not_run_into_each_other() -> None:
    ends = [0.0, 0.5, 0.8, 0.9, 0.94, 0.95, 0.96, 0.98, 1.0]
    pairs = list(itertools.pairwise(ends))
    picture = run_timeline([RunEvent(False, start, end, 1, ("a",)) for start, end in pairs])
    picture.figure.canvas.draw()
    (ax,) = picture.figure.axes
    boxes = sorted(text.get_window_extent().intervalx.tolist() for text in ax.texts)
    assert len(boxes) == 4
    assert all(left[1] < right[0] for left, right in itertools.pairwise(boxes))
    assert ax.get_xlim()[1] > 1.0, "room for the last frame"


@given(st.lists(st.tuples(st.floats(0.5, 20), st.floats(0.1, 30)), min_size=1, max_size=6))
def test_step_times_say_the_fraction_of_each_point(points: list[tuple[float, float]]) -> None:
    batches = [2**i for i in range(len(points))]
    picture = step_times(batches, [[m] for m, _ in points], [f for _, f in points], name="x")
    shown = [text.get_text() for text in picture.figure.axes[0].texts]
    for measured, floor in points:
        assert f"{floor / measured:.0%}" in shown
    last, (measured, floor) = batches[-1], points[-1]
    assert f"{last}: {measured:.3g} ms, floor {floor:.3g} ms" in picture.alt


def test_a_step_time_is_the_median_of_its_measurements() -> None:
    picture = step_times([1], [[9.0, 2.0, 4.0]], [1.0])
    assert "1: 4 ms, floor 1 ms (25%)" in picture.alt


def test_the_roof_is_the_lower_of_memory_and_arithmetic() -> None:
    points = {"left": (2.0, 10e9), "right": (100.0, 50e9)}
    picture = machine_roof(10e9, 100e9, points)
    assert "knee at 10" in picture.alt
    assert "left at 2 operations a byte reaches 50% of it" in picture.alt
    assert "right at 100 operations a byte reaches 50% of it" in picture.alt
    assert len(picture.png()) > 1000
