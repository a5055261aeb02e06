"""Pictures of sampling: what they state is what the numbers say."""

import pytest

pytest.importorskip("matplotlib")

from nanoengine.course import exercises
from nanoengine.viz.sampling import number_line, race, sample_shares

LABELS = ["'a'", "'b'", "'c'"]


def test_a_number_falls_into_its_part() -> None:
    picture = number_line([0.5, 0.2, 0.3], LABELS, 0.6, 1)
    assert "0.600 falls into the part of 'b', from 0.500 to 0.700" in picture.alt
    assert "You gave" not in picture.alt
    assert "You gave token 2" in number_line([0.5, 0.2, 0.3], LABELS, 0.6, 1, got=2).alt
    wrong = number_line([0.5, 0.2, 0.3], LABELS, 0.6, 1, got=9)
    assert any("does not exist" in text.get_text() for text in wrong.figure.axes[0].texts)


def test_the_first_to_arrive_is_named() -> None:
    picture = race([0.5, 0.2, 0.3], LABELS, [1.0, 0.3, 0.9])
    assert "'b' arrives first, after 1.5; the next one after 2.0" in picture.alt
    words = [text.get_text() for text in picture.figure.axes[0].texts]
    assert "0.30 / 0.200 = 1.5  arrives first" in words


def test_shares_are_compared_with_probabilities() -> None:
    counts = {"greedy": [100, 0, 0], "look-up": [51, 19, 30]}
    picture = sample_shares([0.5, 0.2, 0.3], LABELS, counts)
    assert "greedy at most 50.0 points away (at 'a')" in picture.alt
    assert "look-up at most 1.0 points away" in picture.alt
    assert len(picture.figure.axes) == 2


def test_a_failing_row_is_drawn_and_a_greedy_one_is_not() -> None:
    draw = exercises["06.sample"].draw
    assert draw is not None
    args = ([[0.0, 0.0], [0.0, None]], [1.0, 0.0], [0.2, 0.9], "float32")
    picture = draw(args, {"result": [0, 0]}, {"result": [1, 0]})
    assert picture is not None
    assert "You gave token 1" in picture.alt
    assert draw(args, {"result": [0, 0]}, {"result": [0, 1]}) is None
