"""Lesson 05's pictures: drawn from real layers and a measured step; their words are true."""

import json
import multiprocessing
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from nanoengine import LLM, SamplingParams
from nanoengine.course.lessons.frames_05 import draw_write, observe_write
from nanoengine.course.lessons.loaders_05 import draw_rows, observe_rows, rows_cases
from nanoengine.course.parallel import model_cuts, read_steps, recorded_spans, totals
from nanoengine.course.tiny import save_model
from nanoengine.distributed import launch, rpc
from nanoengine.layers.linear import load_rows
from nanoengine.models.config import read_model_config
from nanoengine.viz.frames import frame_layout
from nanoengine.viz.parallel import Span, step_timeline, weight_cuts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_cuts_cover_every_weight(folder: Path, ranks: int) -> None:
    """Each row or column belongs to one rank, but for kv heads that several keep."""
    for weight in model_cuts(read_model_config(folder), ranks):
        axis = weight.cuts[0].axis
        covered = {i for cut in weight.cuts for i in range(cut.start, cut.stop)}
        assert covered == set(range(weight.shape[axis])), weight.name
        assert {cut.rank for cut in weight.cuts} == set(range(ranks))
        total = sum(cut.stop - cut.start for cut in weight.cuts)
        copies = ranks == 4 and weight.name == "qkv_proj"  # 2 kv heads of 8, K and V, kept twice
        assert total == weight.shape[axis] + (2 * 2 * 8 if copies else 0)
    assert [w.behind for w in model_cuts(read_model_config(folder), ranks)].count("all_reduce") == 3


def test_the_cuts_picture_tells_shapes(folder: Path) -> None:
    picture = weight_cuts(model_cuts(read_model_config(folder), 2))
    assert "o_proj [32, 32] is cut by columns, rank 0 keeps 32 x 16, then all_reduce" in picture.alt
    assert "qkv_proj [64, 32] is cut by rows, rank 0 keeps 32 x 32;" in picture.alt
    texts = [text.get_text() for text in picture.figure.axes[0].texts]
    assert texts.count("columns cut") == 2
    assert {"q", "k", "v", "gate", "up"} <= set(texts)
    assert len(picture.png()) > 1000


def test_ranks_are_told_apart_without_colour(folder: Path) -> None:
    patches = weight_cuts(model_cuts(read_model_config(folder), 2)).figure.axes[0].patches
    assert len({patch.get_hatch() for patch in patches}) >= 2


@pytest.mark.skipif(sys.platform != "linux", reason="starts the worker by a fork server")
def test_a_measured_step(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    multiprocessing.set_forkserver_preload(["nanoengine.engine.tensor_parallel"])
    monkeypatch.setattr(launch, "START_METHOD", "forkserver")
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    before = rpc.Receiver.receive
    with recorded_spans(tmp_path):
        assert rpc.Receiver.receive is not before
        options = {"tensor_parallel_size": 2, "num_kvcache_blocks": 8}
        with LLM(folder, device="cpu", overlap=False, **options) as llm:
            llm.generate([[5, 9, 2], [7]], params, use_tqdm=False)
    assert rpc.Receiver.receive is before
    steps = read_steps(tmp_path)
    assert len(steps) == 5
    for step in steps:
        for rank in (0, 1):
            mine = [span.what for span in step if span.rank == rank]
            # the embedding and twice in each of two layers; then logits, then tokens
            assert mine.count("allreduce") == 1 + 2 * 2
            assert (mine.count("gather"), mine.count("broadcast"), mine.count("run")) == (1, 1, 1)
        run = {span.rank: span for span in step if span.what == "run"}
        assert run[1].start > next(s.start for s in step if s.what == "write")
        together = [s for s in step if s.rank == 0 and s.what == "allreduce"]
        assert all(run[0].start <= s.start <= s.end <= run[0].end for s in together)
    means = totals(steps)
    assert 0 < means["together"] < means["run"]
    assert "in 7 collectives" in step_timeline(steps[2]).alt


def test_the_timeline_says_its_numbers() -> None:
    spans = [
        Span(0, "write", 0, 40), Span(0, "run", 50, 450), Span(0, "allreduce", 100, 200),
        Span(0, "sample", 400, 430), Span(1, "wait", -30, 45), Span(1, "read", 45, 55),
        Span(1, "run", 60, 440), Span(1, "allreduce", 120, 201),
    ]  # fmt: skip
    picture = step_timeline(spans)
    assert "rank 0 writes the message in 40 us" in picture.alt
    assert "400 us, 100 of them in 1 collectives" in picture.alt
    assert "rank 1 reads it in 10 us" in picture.alt
    hatched = [p for p in picture.figure.axes[0].patches if p.get_hatch() == "////"]
    assert len(hatched) == 2 + 1, "two collectives, and the legend's"


def test_frames_are_what_was_written() -> None:
    args = (8, 4, 1, [5, 6, 7], None)
    right = observe_write(rpc.write_message, args)
    picture = frame_layout(right, room=8)
    assert "12 bytes in 2 pieces" in picture.alt
    assert "start at bytes [0, 8] and hold [8, 4] bytes" in picture.alt
    texts = [text.get_text() for text in picture.figure.axes[0].texts]
    assert texts.count("nano") == 2
    assert [t for t in texts if t in "567"] == ["5", "6", "7"]


def test_a_wrong_frame_is_crossed() -> None:
    def piece_as_total(buffer, number, kind, payload, start=0):
        end = rpc.write_message(buffer, number, kind, payload, start)
        rpc.HEADER.pack_into(buffer, 0, rpc.MAGIC, number, kind, 8, start, end - start)
        return end

    args = (8, 4, 1, [5, 6, 7], None)
    right, wrong = (observe_write(f, args) for f in (rpc.write_message, piece_as_total))
    picture = draw_write(args, right, wrong)
    assert picture is not None
    crossed = [p for p in picture.figure.axes[1].patches if p.get_hatch() == "xxxx"]
    assert len(crossed) == 2, "the total, in both pieces"
    assert "Your headers: [[4, 1, 8, 0, 8], [4, 1, 8, 8, 4]]" in picture.alt


def test_a_wrong_shard_is_drawn() -> None:
    case = next(case for case in rows_cases() if case.check == "v")
    right = observe_rows(load_rows, case.args)
    wrong = observe_rows(lambda t, s, cuts, part: t[:2].copy_(s[cuts[part]]), case.args)
    picture = draw_rows(case.args, json.loads(json.dumps(right)), wrong)
    assert picture is not None
    assert "Rows [0, 1, 6, 7] of your shard differ" in picture.alt
