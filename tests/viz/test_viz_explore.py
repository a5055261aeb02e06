"""Sliders over a figure: they redraw, are shown once, and without widgets a picture is left."""

import sys
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from nanoengine.errors import NotEnoughMemory
from nanoengine.viz.address import address_map
from nanoengine.viz.explore import explore
from nanoengine.viz.style import Picture

WIDGET = "application/vnd.jupyter.widget-view+json"


def draw(block_size: int = 4, cached: int = 4, share: float = 0.5) -> Picture:
    if cached > 8:
        raise NotEnoughMemory("more than <eight>: take fewer")
    blocks = -(-10 // block_size)
    return address_map(list(range(blocks, 0, -1)), cached, 10, block_size)


CONTROLS: dict[str, Any] = {"block_size": [2, 4, 8], "cached": (0, 9, 1), "share": (0.0, 1.0, 0.1)}


def test_a_moved_slider_draws_again() -> None:
    pytest.importorskip("ipywidgets")
    explorer = explore(draw, **CONTROLS)
    shown = explorer._view.children[-1]
    assert "blocks of 4" in shown.value
    explorer.sliders["block_size"].value = 2
    assert explorer.settings == {"block_size": 2, "cached": 4, "share": 0.5}
    assert "blocks of 2" in shown.value
    assert "blocks of 2" in explorer.picture.alt
    explorer.sliders["cached"].value = 9
    assert "more than &lt;eight&gt;: take fewer" in shown.value
    with pytest.raises(NotEnoughMemory, match="take fewer"):
        _ = explorer.picture
    explorer.sliders["cached"].value = 0
    assert "tokens 0 to 9" in shown.value


def test_controls_have_their_kinds_and_begin_at_the_defaults() -> None:
    widgets = pytest.importorskip("ipywidgets")
    sliders = explore(draw, **CONTROLS).sliders
    kinds = {name: type(slider) for name, slider in sliders.items()}
    assert kinds == {
        "block_size": widgets.Dropdown, "cached": widgets.IntSlider, "share": widgets.FloatSlider
    }  # fmt: skip
    assert [slider.value for slider in sliders.values()] == [4, 4, 0.5]


def test_a_figure_is_drawn_once_for_each_setting() -> None:
    pytest.importorskip("ipywidgets")
    drawn = []

    def counted(cached: int = 4) -> Picture:
        drawn.append(cached)
        return draw(cached=cached)

    explorer = explore(counted, cached=(0, 9, 1))
    explorer._repr_mimebundle_()
    explorer.sliders["cached"].value = 2
    assert drawn == [4, 2]


def test_one_output_holds_sliders_and_picture() -> None:
    pytest.importorskip("ipywidgets")
    bundle = explore(draw, **CONTROLS)._repr_mimebundle_()
    assert set(bundle) == {WIDGET, "text/html", "text/plain"}
    assert bundle["text/html"].count("<img") == 1
    assert "model_id" in bundle[WIDGET]


def test_without_widgets_there_is_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    bundle = explore(draw, **CONTROLS)._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert 'alt="A sequence of 10 tokens' in bundle["text/html"]
    assert "blocks of 4" in bundle["text/plain"]


def test_an_argument_without_a_default_is_refused() -> None:
    with pytest.raises(ValueError, match="'size' is no argument"):
        explore(draw, size=[1])
    with pytest.raises(ValueError, match="'block_table' is no argument of `draw` with a default"):
        explore(address_map, block_table=[1])
