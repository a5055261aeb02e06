"""Pictures of a run and of a step: what they state is what was recorded."""

from typing import Any

import pytest
import torch

pytest.importorskip("matplotlib")

from nanoengine.engine.inputs import DecodeInputs, PrefillInputs
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sequence import Batch
from nanoengine.viz.runner import Call, call_chain, five_steps


def record(is_prefill: bool, bucket: int | None = None) -> StepRecord:
    items: Any = [None, None]
    lists: Any
    if is_prefill:
        lists = PrefillInputs([5, 6, 7], [0, 1, 0], [8, 9, 20], [0, 2, 3], [0, 2, 3], 2, 2, None)
    else:
        lists = DecodeInputs([5, -2], [9, 4], [21, 3], [10, 5], [[7, 2, 5], [0, 3, -1]])
    logits = torch.tensor([[0.0, 3.5], [1.0, 2.0]])
    return StepRecord(4, Batch(items, is_prefill), lists, None, bucket, logits, [1, 0])


def texts_of(picture: Any) -> list[str]:
    return [text.get_text() for ax in picture.figure.axes for text in ax.texts]


def test_a_decode_run_with_its_numbers() -> None:
    picture = five_steps(record(is_prefill=False, bucket=4), 32, [" a", ""])
    shown = "\n".join(texts_of(picture))
    for text in ("[21, 3]", "[10, 5]", "replay of graph 4", "[2, 32]", "[2, 2]", "3.5", "' a'"):
        assert text in shown, text
    assert "[5, row 1's]" in shown  # a token that is still on the device
    assert "row 0" in shown
    assert "row 1 " not in shown  # an empty text is left out
    assert "decode run with 2 sequences" in picture.alt
    assert "context_lens [10, 5]" in picture.alt


def test_a_prefill_run_shows_its_borders_and_runs_eagerly() -> None:
    picture = five_steps(record(is_prefill=True), 32)
    assert "cu_seqlens_q [0, 2, 3]" in picture.alt
    assert "eager 3 rows" in picture.alt
    assert "context_lens" not in picture.alt


def test_a_long_batch_is_cut_and_every_text_stays_inside_the_frame() -> None:
    long = record(is_prefill=True)
    lists: Any = long.inputs
    lists.input_ids = list(range(1000, 1040))
    picture = five_steps(long, 32)
    (ax,) = picture.figure.axes
    bottom = max(
        patch.get_y() + patch.get_height() for patch in ax.patches if patch.get_width() > 1
    )
    assert max(text.get_position()[1] for text in ax.texts) < bottom
    assert "1005, ...]" in picture.alt


CALLS = [
    Call("LLMEngine", "step", 0, 0.0, 0.010),
    Call("ModelRunner", "run", 1, 0.001, 0.004, "prefill, 1 rows"),
    Call("model", "forward", 2, 0.002, 0.004),
    Call("ModelRunner", "run", 1, 0.004, 0.008, "decode, 2 rows"),
    Call("model", "forward", 2, 0.005, 0.008),
    Call("Scheduler", "applied", 1, 0.008, 0.009),
    Call("BlockManager", "hash_blocks", 2, 0.0085, 0.009),
    Call("Scheduler", "applied", 1, 0.009, 0.010),
    Call("BlockManager", "hash_blocks", 2, 0.0095, 0.010),
]


def test_the_same_calls_share_a_row_and_runs_do_not() -> None:
    picture = call_chain(CALLS)
    shown = texts_of(picture)
    assert shown.count("ModelRunner.run") == 2
    assert "Scheduler.applied ×2" in shown
    assert "BlockManager.hash_blocks ×2" in shown
    assert "10.00 ms" in picture.alt
    assert "model.forward takes 50% of it" in picture.alt


def test_calls_stand_in_their_order() -> None:
    alt = call_chain(CALLS).alt
    places = [
        alt.index(name) for name in ("LLMEngine.step", "ModelRunner.run", "Scheduler.applied")
    ]
    assert places == sorted(places)
