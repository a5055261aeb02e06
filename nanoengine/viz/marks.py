"""Marks around boxes: arrows, brackets, frames, and text in a sequence's look."""

from typing import TYPE_CHECKING

from nanoengine.viz.style import FONT, INK, MUTED, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]


def arrow(
    ax: "Axes", start: Point, end: Point, colour: str = INK, dashed: bool = False, bend: float = 0.0
) -> None:
    """An arrow from `start` to `end`; bend: how much it curves, 0 is straight."""
    from matplotlib.patches import FancyArrowPatch

    ax.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            connectionstyle=f"arc3,rad={bend}",
            mutation_scale=9,
            shrinkA=0,
            shrinkB=0,
            linewidth=1.1,
            linestyle="--" if dashed else "-",
            color=colour,
        )
    )


def line(ax: "Axes", *points: Point, colour: str = INK, width: float = 1.0) -> None:
    """A thin line through the points."""
    ax.plot([x for x, _ in points], [y for _, y in points], color=colour, linewidth=width)


def bracket(
    ax: "Axes", left: float, right: float, y: float, text: str, up: bool = False, tick: float = 0.2
) -> None:
    """A flat bracket from `left` to `right` with its text on the far side; y grows downwards."""
    inner = y + tick if up else y - tick
    line(ax, (left, inner), (left, y), (right, y), (right, inner), colour=MUTED)
    label(ax, (left + right) / 2, y + (-2 if up else 2) * tick, text, size=FONT - 0.5, colour=INK)


def frame(ax: "Axes", x: float, y: float, width: float = 1.0, height: float = 1.0) -> None:
    """A thick frame around a box: look here."""
    from matplotlib.patches import Rectangle

    ax.add_patch(
        Rectangle((x, y), width, height, fill=False, edgecolor=INK, linewidth=2.6, zorder=3)
    )
