"""Lesson 01's pictures: alt texts hold the numbers, marks are in the right places, bytes repeat."""

import pytest

pytest.importorskip("matplotlib")

from nanoengine.engine import inputs
from nanoengine.viz.batch import packed_batch
from nanoengine.viz.slots import slot_grid
from nanoengine.viz.style import Picture
from nanoengine.viz.tables import block_tables

TABLE, SLOTS = [7, 2, 5], [8, 9, 10, 11, 20, 21]


def texts(picture: Picture) -> list[str]:
    return [text.get_text() for ax in picture.figure.axes for text in ax.texts]


def crossed(picture: Picture) -> int:
    patches = [p for ax in picture.figure.axes for p in ax.patches]
    return sum(p.get_hatch() == "xxxx" for p in patches)


def batch() -> inputs.PrefillInputs:
    return inputs.PrefillInputs([1, 2, 3], [4, 5, 0], [8, 9, 12], [0, 2, 3], [0, 6, 7], 2, 6, None)


def test_slot_grid_of_the_worked_example() -> None:
    picture = slot_grid(TABLE, 4, SLOTS, 4)
    assert str(SLOTS) in picture.alt
    assert [t for t in texts(picture) if t.startswith("block ")] == [
        "block 2",
        "block 5",
        "block 7",
    ]
    assert sorted(t for t in texts(picture) if t[0] == "t") == [f"t{i}" for i in range(10)]
    assert crossed(picture) == 0


def test_slot_grid_crosses_only_wrong_slots() -> None:
    picture = slot_grid(TABLE, 4, SLOTS, 4, got=[8, 9, 10, 11, 22, 21])
    assert crossed(picture) == 1
    assert "[8, 9, 10, 11, 22, 21]" in picture.alt


@pytest.mark.parametrize("got", [None, 3, [], [None, "x"], [-1, 10**6], {"type": "generator"}])
def test_odd_results_can_be_drawn(got: object) -> None:
    assert slot_grid(TABLE, 4, SLOTS, 4, got=got).png()
    assert block_tables([[7, 2], [3, -1]], [2, 1], got=got).png()
    assert packed_batch(batch(), got=got if isinstance(got, dict) else {}).png()


def test_block_tables_mark_filling_and_differences() -> None:
    picture = block_tables([[7, 2, 5], [3, -1, -1]], [3, 1], got=[[7, 2, 5], [-1, -1, 3]])
    assert crossed(picture) == 2
    assert "2 entries are filling" in picture.alt
    assert "no sequence has history" in block_tables(None, []).alt


def test_packed_batch_names_borders_and_differences() -> None:
    right = batch()
    assert "cu_seqlens_q [0, 2, 3]" in packed_batch(right).alt
    wrong = {"input_ids": [1, 2, 3], "positions": [0, 1, 0], "slot_mapping": [8, 9, 12],
             "cu_seqlens_q": [0, 2, 3], "cu_seqlens_k": [0, 2, 3]}  # fmt: skip
    picture = packed_batch(right, got=wrong)
    assert "differs in positions, cu_seqlens_k" in picture.alt
    assert crossed(picture) == 2


def test_svg_is_the_same_every_time_and_html_has_alt_text() -> None:
    picture = slot_grid(TABLE, 4, SLOTS, 4)
    assert picture.svg() == slot_grid(TABLE, 4, SLOTS, 4).svg()
    assert f'alt="{picture.alt}"' in picture._repr_html_()
