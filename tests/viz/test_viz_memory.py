"""Pictures of GPU memory: sizes and sums are the data's, and no label lies on another."""

import pytest

pytest.importorskip("matplotlib")

import figure_looks as looks
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoengine.engine.kv_cache import num_kvcache_blocks
from nanoengine.viz.allocation import allocation_curve
from nanoengine.viz.memory import cache_binding, memory_bar, size
from nanoengine.viz.style import Picture

GIB, MIB = 1 << 30, 1 << 20
CARD = {
    "total": 8 * GIB, "used": 2 * GIB, "peak": 1800 * MIB, "current": 1300 * MIB,
    "block_bytes": 28 * MIB, "utilization": 0.9, "reserve": 0,
}  # fmt: skip


def texts(picture: Picture) -> list[str]:
    return [text.get_text() for ax in picture.figure.axes for text in ax.texts]


def test_sizes_are_written_in_their_unit() -> None:
    assert [size(n) for n in (12, 2048, 28 * MIB, int(4.7 * GIB))] == [
        "12 bytes", "2.0 KiB", "28.0 MiB", "4.70 GiB",
    ]  # fmt: skip


def test_the_bar_holds_every_term_and_the_sum() -> None:
    picture = memory_bar(CARD | {"reserve": 256 * MIB})
    said = " ".join(texts(picture))
    for part in ("748.0 MiB", "1.27 GiB", "500.0 MiB", "256.0 MiB", "total x utilization: 0.9"):
        assert part in said
    blocks = num_kvcache_blocks(**(CARD | {"reserve": 256 * MIB}))  # type: ignore[arg-type]
    assert f"= {blocks} blocks" in said
    assert f"{blocks} blocks of 28.0 MiB fit" in picture.alt


def test_a_students_number_is_a_second_bar_that_shows_where_it_ends() -> None:
    picture = memory_bar(CARD, got=250)
    right, mine = picture.figure.axes
    assert right.get_xlim() == mine.get_xlim()
    assert any(patch.get_hatch() == "xxxx" for patch in mine.patches)
    assert not any(patch.get_hatch() == "xxxx" for patch in right.patches)
    assert picture.alt.endswith("You gave 250.")
    assert not any("= 250 blocks" in text for text in texts(picture)), "that sum is not true"


@settings(max_examples=15, deadline=None)
@given(
    st.integers(4, 160), st.floats(0.4, 1.0), st.integers(0, 90), st.integers(0, 40),
    st.integers(0, 10),
)  # fmt: skip
def test_labels_of_any_card_are_apart(
    gib: int, utilization: float, weights: int, spike: int, reserve: int
) -> None:
    """Shares of the card in percent."""
    total = gib * GIB
    used = total * weights // 100
    terms = CARD | {
        "total": total, "utilization": round(utilization, 2), "used": used + GIB // 2,
        "current": used, "peak": used + total * spike // 100, "reserve": total * reserve // 100,
    }  # fmt: skip
    figure = memory_bar(terms).figure
    assert looks.overlapping_texts(figure) == []
    assert looks.small_texts(figure) == []


def test_a_curve_is_named_at_its_peak() -> None:
    picture = allocation_curve({"small": [0, 5 * MIB, 0], "large": [0, 20 * MIB, 0]}, 30 * MIB)
    (ax,) = picture.figure.axes
    places = {text.get_text(): text.get_position()[1] for text in ax.texts}
    assert places["small"] == 35
    assert places["large"] == 50
    assert "small: 5.0 MiB above what stays; large: 20.0 MiB" in picture.alt


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None)
def test_names_of_equal_peaks_are_apart(peaks: list[int]) -> None:
    curves = {f"curve {i}": [0, peak * MIB] for i, peak in enumerate(peaks)}
    assert looks.overlapping_texts(allocation_curve(curves, 10 * MIB).figure) == []


def test_a_binding_is_compared_slice_by_slice() -> None:
    right = [[f"{kv} of layer {layer}" for kv in "KV"] for layer in range(2)]
    assert "every layer has its own slices" in cache_binding((2, 3, 4, 1, 8), right).alt
    wrong = cache_binding((2, 3, 4, 1, 8), [right[0], right[0]])
    assert "layer 1 has K of layer 0 instead of K of layer 1" in wrong.alt
    crossed = [patch for patch in wrong.figure.axes[1].patches if patch.get_hatch() == "xxxx"]
    assert len(crossed) == 2
