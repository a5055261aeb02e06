"""The picture of scaling: what it says comes from the runs."""

import pytest

from nanoengine.viz.scaling import scaling_curves

DEVICE = {"batch": 64, "dtype": "bfloat16", "device": "an invented GPU"}


def result(shape: str, *runs: dict[str, object]) -> dict[str, object]:
    return {"shape": shape, **DEVICE, "runs": list(runs)}


EIGHT = result(
    "qwen3-8b",
    {"ranks": 1, "scaling": 1.0},
    {"ranks": 2, "scaling": 1.75},
    {"ranks": 16, "error": "16 heads cannot be divided"},
)
LARGE = result("qwen3-32b", {"ranks": 4, "scaling": 3.5}, {"ranks": 1, "scaling": 1.0})


def test_alt_and_labels_tell_every_run_that_ran() -> None:
    picture = scaling_curves([EIGHT, LARGE])
    assert "qwen3-8b: 1.00 on 1, 1.75 on 2; qwen3-32b: 1.00 on 1, 3.50 on 4" in picture.alt
    assert "on 16" not in picture.alt
    (ax,) = picture.figure.axes
    texts = [text.get_text() for text in ax.texts]
    assert "qwen3-8b: 1.75x on 2" in texts
    assert "qwen3-32b: 3.50x on 4" in texts
    ideal = ax.lines[0]
    assert list(ideal.get_ydata()) == [1, 2, 4]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "4"]
    assert len({line.get_marker() for line in ax.lines[1:]}) == 2, "not told apart in grey"


def test_nothing_to_draw_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        scaling_curves([result("tiny", {"ranks": 3, "error": "8 heads cannot be divided"})])
    with pytest.raises(ValueError, match="0 results"):
        scaling_curves([])


def test_the_picture_is_the_same_every_time() -> None:
    assert scaling_curves([EIGHT]).svg() == scaling_curves([EIGHT]).svg()
