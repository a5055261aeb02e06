"""The KV pool's pictures: what they state is what the data says."""

import pytest

pytest.importorskip("matplotlib")

from nanoengine.viz.kv_pool import Held, kv_pool, slot_owners


def test_the_alt_text_states_what_was_written() -> None:
    picture = kv_pool(
        [Held([7, 2], 5), Held([3], 4)],
        [Held([7, 2], 6), Held([3, 0], 5)],
        num_blocks=8,
        block_size=4,
    )
    assert "sequence A in blocks [7, 2] grows from 5 to 6 tokens" in picture.alt
    assert "sequence B in blocks [3, 0] grows from 4 to 5 tokens" in picture.alt
    assert "wrote slots [0, 9]" in picture.alt  # B's position 4: block 0; A's position 5: block 2
    assert "other 9 used slots" in picture.alt


def test_every_token_is_written_into_its_cell() -> None:
    figure = kv_pool([Held([1], 2)], [Held([1], 3)], num_blocks=2, block_size=4).figure
    before, after = ([text.get_text() for text in ax.texts] for ax in figure.axes)
    assert [text for text in before if text.startswith("A")] == ["A0", "A1"]
    assert [text for text in after if text.startswith("A")] == ["A0", "A1", "A2"]


def test_sequences_are_told_apart_without_colour() -> None:
    """By a letter and, up to four of them, a hatch of their own."""
    held = [Held([i], 1) for i in range(4)]
    figure = kv_pool(held, held, num_blocks=4, block_size=4).figure
    hatches = {p.get_hatch() for p in figure.axes[0].patches if p.get_hatch() is not None}
    assert len(hatches) >= 3


def test_a_large_pool_is_cut_and_can_be_drawn() -> None:
    held = [Held(list(range(60)), 200)]
    assert len(kv_pool(held, held, num_blocks=60, block_size=4).png()) > 1000


def test_a_students_slots_are_compared() -> None:
    picture = slot_owners({5: "t0"}, 2, 4, got={5: "t0", 7: "t1"})
    assert "slots [7] differ" in picture.alt
    assert "should hold {5: 't0'}" in picture.alt
    assert len(picture.figure.axes) == 2
    assert len(slot_owners({}, 2, 4).figure.axes) == 1
