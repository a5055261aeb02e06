"""Sliders over a figure, and the figure alone where there are no widgets.

One object, shown once: a front end that knows widgets shows the sliders with the figure below, any
other (a page on the web, a PDF, a terminal) takes the same output's picture or its alt text.
"""

import html
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from nanoengine.errors import NanoengineError
from nanoengine.viz.style import Picture

_WIDGET = "application/vnd.jupyter.widget-view+json"
Range = tuple[float, float, float]  # lowest, highest, step


class Explorer:
    """What `explore` returns; `picture` is the figure at the present settings."""

    def __init__(
        self, draw: Callable[..., Picture], controls: dict[str, Range | Sequence[Any]]
    ) -> None:
        self._draw = draw
        self.settings = _defaults(draw, controls)
        self._result = self._drawn()
        self.sliders: dict[str, Any] = {}
        self._view: Any = None
        try:
            ipywidgets: Any = importlib.import_module("ipywidgets")
        except ImportError:
            return
        self._shown = ipywidgets.HTML(self._html())
        for name, values in controls.items():
            slider = self.sliders[name] = _control(ipywidgets, name, values, self.settings[name])
            slider.observe(self._moved, names="value")
        self._view = ipywidgets.VBox([*self.sliders.values(), self._shown])

    @property
    def picture(self) -> Picture:
        """The figure at the present settings. Raises the error that drawing it raised."""
        if isinstance(self._result, NanoengineError):
            raise self._result
        return self._result

    def _drawn(self) -> Picture | NanoengineError:
        """The figure; or, where the settings cannot work, the error that says so."""
        try:
            return self._draw(**self.settings)
        except NanoengineError as error:
            return error

    def _moved(self, change: Any) -> None:
        self.settings = {name: slider.value for name, slider in self.sliders.items()}
        self._result = self._drawn()
        self._shown.value = self._html()

    def _html(self) -> str:
        if isinstance(self._result, NanoengineError):
            return f"<p>{html.escape(str(self._result))}</p>"
        return self._result._repr_html_()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": str(self._result), "text/html": self._html()}
        if self._view is not None:
            bundle[_WIDGET] = self._view._repr_mimebundle_()[_WIDGET]
        return bundle


def explore(draw: Callable[..., Picture], **controls: Range | Sequence[Any]) -> Explorer:
    """A figure with a control for some of the arguments of `draw`; show it as a cell's last line.

    draw: returns a Picture; its defaults are where the controls begin. controls: for each argument
    (lowest, highest, step) for a slider, or a list of choices.

    >>> explore(draw, block_size=[2, 4, 8], cached=(0, 9, 1))  # doctest: +SKIP
    """
    return Explorer(draw, controls)


def _defaults(draw: Callable[..., Picture], controls: dict[str, Any]) -> dict[str, Any]:
    """Where the controls begin. Raises ValueError for an argument without a default."""
    parameters = inspect.signature(draw).parameters
    for name in controls:
        if name not in parameters or parameters[name].default is inspect.Parameter.empty:
            raise ValueError(f"{name!r} is no argument of `draw` with a default: give it one")
    return {name: parameters[name].default for name in controls}


def _control(widgets: Any, name: str, values: Range | Sequence[Any], start: Any) -> Any:
    common = {"description": name, "value": start, "style": {"description_width": "initial"}}
    if isinstance(values, tuple):
        low, high, step = values
        whole = all(isinstance(value, int) for value in values)
        kind = widgets.IntSlider if whole else widgets.FloatSlider
        # drawn when the slider is let go: a figure takes a moment
        return kind(min=low, max=high, step=step, continuous_update=False, **common)
    return widgets.Dropdown(options=list(values), **common)
