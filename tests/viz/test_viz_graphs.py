"""Lesson 04's pictures: what they state is what the data says."""

import itertools
import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from nanoengine.course.lessons.traces_04 import mean_timelines
from nanoengine.engine.cuda_graph import graph_buckets
from nanoengine.viz.graphs import padded_bucket, padding_waste, step_timeline, waste_of

RECORDED = Path(__file__).parent.parent.parent / "figures" / "data" / "graphs_h200.json"
SLOTS, LENGTHS = [*range(40, 77), *[-1] * 11], [*range(1, 38), *[0] * 11]


def test_a_padded_bucket_says_what_is_padding() -> None:
    picture = padded_bucket(37, 48, SLOTS, LENGTHS, buckets=graph_buckets(512))
    assert "37 sequences in the graph of bucket 48, 11 rows of padding" in picture.alt
    assert "Rows 37 to 47: slot -1, context length 0" in picture.alt
    texts = [text.get_text() for text in picture.figure.axes[0].texts]
    assert texts.count("-1") == 11
    assert {"48", "512", "..."} <= set(texts)


def test_padding_is_told_by_its_hatch() -> None:
    ax = padded_bucket(37, 48, SLOTS, LENGTHS).figure.axes[0]
    assert sum(bool(patch.get_hatch()) for patch in ax.patches) == 11


def test_a_students_rows_are_compared() -> None:
    mine = {"slot_mapping": [7, 3, 12, 9], "context_lens": [2, 3, 1, 4]}
    picture = padded_bucket(3, 4, [7, 3, 12, -1], [2, 3, 1, 0], got=mine)
    assert "1 row of padding. Row 3: slot -1" in picture.alt
    assert "1 row with other numbers; row 3 has slot 9, context length 4" in picture.alt
    assert len(picture.figure.axes) == 2
    same = {"slot_mapping": [7, 3, 12, -1], "context_lens": [2, 3, 1, 0]}
    assert "the same" in padded_bucket(3, 4, [7, 3, 12, -1], [2, 3, 1, 0], got=same).alt


def test_a_full_and_a_large_bucket() -> None:
    assert "no row is padding" in padded_bucket(2, 2, [4, 9], [1, 2]).alt
    large = padded_bucket(200, 256, [1] * 200 + [-1] * 56, [1] * 200 + [0] * 56)
    assert any("192 more rows" in t.get_text() for t in large.figure.axes[0].texts)
    assert len(large.png()) > 1000


def test_waste_by_hand() -> None:
    waste = waste_of([1, 4], 5)
    assert waste.graphs == 2
    assert waste.mean == pytest.approx((0 + 2 / 4 + 1 / 4 + 0) / 4)  # batches 1 to 4
    assert (waste.worst, waste.worst_batch) == (0.5, 2)
    assert waste.missing == [5]
    assert waste_of(graph_buckets(100), 100).missing == []


def test_the_waste_picture_names_missing_batches_and_has_a_panel_a_policy() -> None:
    policies = {"nano": [1, 2, 4, 8, 16], "ours": graph_buckets(20)}
    picture = padding_waste(policies, 20)
    assert "nano: 5 graphs" in picture.alt
    assert "batches of 17 to 20 find no graph" in picture.alt
    titles = [ax.get_title(loc="right") for ax in picture.figure.axes]
    assert [title.partition(":")[0] for title in titles] == ["nano", "ours"]
    assert len({ax.get_ylim() for ax in picture.figure.axes}) == 1


@pytest.mark.parametrize(("eager", "graph", "busy"), [(10.0, 2.0, "20%"), (2.0, 2.0, "100%")])
def test_mean_timelines(eager: float, graph: float, busy: str) -> None:
    """Kernels wait for their launch and for each other; nothing overlaps on one lane."""
    first, replay = mean_timelines(100, eager, graph)
    assert len(first.launches) == len(first.kernels) == 100
    assert len(replay.launches) == 1
    for lane in (first.launches, first.kernels, replay.kernels):
        for (start, length), (following, _) in itertools.pairwise(lane):
            assert following >= start + length - 1e-6
    for (launch, took), (start, _) in zip(first.launches, first.kernels, strict=True):
        assert start >= launch + took - 1e-6
    picture = step_timeline([first, replay], until=300)
    assert f"100 launches, 100 kernels, {eager:.2f} ms, the GPU computes {busy}" in picture.alt
    assert "first 300 microseconds" in picture.alt


def test_a_slow_kernel_makes_the_next_one_wait() -> None:
    first, _ = mean_timelines(4, 0.004, 0.012)  # 1 microsecond a launch, 3 a kernel
    assert [start for start, _ in first.kernels] == pytest.approx([1, 4, 7, 10])


def test_recorded_numbers_fit_together() -> None:
    """Launches a step are those of the profile's window; a replay is faster than launching."""
    data = json.loads(RECORDED.read_text(encoding="utf-8"))
    for peer in data["decode_step_launches"]:
        assert peer["launches"] == round(peer["window_launches"] / peer["steps"])
    *single, many = data["eager_and_graph"]["runs"]
    assert all(9 <= round(run["eager_ms"]) <= 13 for run in single)
    assert all(run["graph_ms"] < run["eager_ms"] / 3 for run in single)
    assert many["graph_ms"] == pytest.approx(many["eager_ms"], rel=0.01)
    runs = [*single, many]
    assert [run["graph_ms"] for run in runs] == sorted(run["graph_ms"] for run in runs)
    *with_graphs, eager = data["batch_1_ms_a_token"]
    assert min(eager["ms"]) > 10 * max(ms for peer in with_graphs for ms in peer["ms"])
    tiny = data["tiny_kernels_in_a_graph"]
    assert 1000 * tiny["ms"] / tiny["kernels"] == pytest.approx(1.33, abs=0.005)
    assert all(step["floor"] < step["ms"] for step in data["one_graph_a_step"]["steps"])
