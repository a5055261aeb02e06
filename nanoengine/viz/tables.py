"""Block tables as the rectangle that operators get."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nanoengine.viz.style import FILLING, MUTED, NEW, RED, WRONG, Picture, canvas
from nanoengine.viz.style import cell as draw_cell
from nanoengine.viz.style import label as draw_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_ROWS, _MAX_COLUMNS = 12, 16


def block_tables(
    tables: Sequence[Sequence[int]] | None, owned: Sequence[int], *, got: Any = None
) -> Picture:
    """One row a sequence; `owned[i]` blocks are its own, the rest is filling.

    got: a student's tables, drawn beside it; entries that differ are crossed.
    """
    right = [list(row) for row in tables or []]
    given = [row if isinstance(row, list) else [] for row in got] if isinstance(got, list) else []
    rows = min(max(len(right), len(given), 1), _MAX_ROWS)
    figure, axes = canvas(0.7 + 0.34 * rows)
    width = max((len(row) for row in right), default=0)
    _table(axes[0], 0, right, owned, None, "block tables (hatched: filling, never read)")
    end = width + 5.0
    if got is not None:
        end += max(max((len(row) for row in given), default=0), 4) + 3.0
        _table(axes[0], width + 6.0, given, owned, right, "yours (crossed: differs)")
    axes[0].set_xlim(-2.6, max(end, 14))
    axes[0].set_ylim(rows + 0.3, -1.1)
    return Picture(figure, _alt(right, owned, got))


def _table(
    ax: "Axes",
    x0: float,
    rows: Sequence[Sequence[Any]],
    owned: Sequence[int],
    right: Sequence[Sequence[Any]] | None,
    title: str,
) -> None:
    draw_label(ax, x0, -0.6, title, align="left", colour=MUTED if right is None else RED)
    for y, row in enumerate(rows[:_MAX_ROWS]):
        if right is None:
            draw_label(ax, x0 - 0.2, y + 0.5, f"sequence {y}", align="right", colour=MUTED)
        for x, entry in enumerate(row[:_MAX_COLUMNS]):
            role = NEW
            if y >= len(owned) or x >= owned[y]:
                role = FILLING
            if right is not None and (y >= len(right) or [*right[y], None][: x + 1][x:] != [entry]):
                role = WRONG
            draw_cell(ax, x0 + x, y, str(entry), role)
    if not rows:
        draw_label(ax, x0, 0.5, "none", align="left")


def _alt(right: Sequence[Sequence[int]], owned: Sequence[int], got: Any) -> str:
    width = max((len(row) for row in right), default=0)
    filling = sum(width - count for count in owned)
    text = (
        f"Block tables of {len(right)} sequences as a rectangle {width} wide: {list(right)[:6]}; "
        f"{filling} entries are filling."
    )
    if not right:
        text = "No block tables: no sequence has history to read."
    if got is None:
        return text
    return f"{text} Your function gave {got[:6] if isinstance(got, list) else type(got).__name__}."
