"""The slot grid: the cache as rows of blocks, and which slot each token goes to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nanoengine.viz.style import CACHED, EMPTY, FONT, MUTED, NEW, RED, WRONG, Picture, canvas
from nanoengine.viz.style import cell as draw_cell
from nanoengine.viz.style import label as draw_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_SLOTS = 64  # shown; a wider grid cannot be read


def slot_grid(
    block_table: Sequence[int],
    start: int,
    slots: Sequence[int],
    block_size: int,
    *,
    got: Any = None,
    cached: bool = True,
) -> Picture:
    """The blocks of one sequence in the cache, tokens in their slots.

    slots: where tokens start, start + 1, ... belong. cached: draw tokens 0..start-1 as cached.
    got: a student's slots for the same tokens; drawn as a second grid, wrong ones crossed.

    >>> picture = slot_grid([7, 2, 5], 4, [8, 9, 10, 11, 20, 21], 4)  # doctest: +SKIP
    """
    given = [s for s in got if isinstance(s, int)] if isinstance(got, list) else []
    blocks = _shown_blocks(block_table, given, block_size)
    grids = 1 if got is None else 2
    figure, axes = canvas(0.55 + grids * (1.15 + 0.45 * (len(blocks) * block_size > 24)), grids)
    old = {block_table[p // block_size] * block_size + p % block_size: p for p in range(start)}
    right = {slot: start + i for i, slot in enumerate(slots)}
    dots = "; dotted: cached before" if old and cached else ""
    title = f"slot = block x {block_size} + offset; block table {list(block_table)}{dots}"
    _grid(axes[0], blocks, block_size, old if cached else {}, right, set(), title)
    if got is not None:
        mine: dict[int, int] = {}
        wrong: set[int] = set()
        for index, slot in enumerate(given):
            mine[slot] = start + index
            if index >= len(slots) or slots[index] != slot:
                wrong.add(slot)
        _grid(axes[1], blocks, block_size, {}, mine, wrong, "your slots (crossed: wrong)")
    return Picture(figure, _alt(block_table, start, slots, block_size, got))


def _shown_blocks(table: Sequence[int], given: Sequence[int], block_size: int) -> list[int]:
    """Blocks of the table and those that a wrong answer hit, in the cache's order."""
    hit = {slot // block_size for slot in given if slot >= 0}
    return sorted({*table, *hit})[: max(1, _MAX_SLOTS // block_size)]


def _grid(
    ax: "Axes",
    blocks: Sequence[int],
    size: int,
    old: dict[int, int],
    new: dict[int, int],
    wrong: set[int],
    title: str,
) -> None:
    per_row = max(1, 24 // size)  # blocks side by side
    width = 0.0
    for index, block in enumerate(blocks):
        x0 = (index % per_row) * (size + 0.7)
        y0 = (index // per_row) * 2.6
        width = max(width, x0 + size)
        draw_label(ax, x0 + size / 2, y0 - 0.3, f"block {block}", bold=True)
        for offset in range(size):
            slot = block * size + offset
            if slot in new:
                role, text = (WRONG if slot in wrong else NEW), f"t{new[slot]}"
            elif slot in old:
                role, text = CACHED, f"t{old[slot]}"
            else:
                role, text = EMPTY, ""
            draw_cell(ax, x0 + offset, y0, text, role, small=size > 8)
            draw_label(ax, x0 + offset + 0.5, y0 + 1.3, str(slot), size=FONT - 1, colour=MUTED)
    rows = -(-len(blocks) // per_row)
    ax.set_xlim(-0.2, max(width, 16) + 0.2)
    ax.set_ylim(rows * 2.6 - 0.9, -1.6)
    colour = RED if wrong else MUTED
    draw_label(ax, 0, -1.2, title, align="left", colour=colour)


def _alt(table: Sequence[int], start: int, slots: Sequence[int], block_size: int, got: Any) -> str:
    """What the grid says, in words."""
    text = (
        f"Slot grid, block size {block_size}, block table {list(table)}: "
        f"tokens {start} to {start + len(slots) - 1} go to slots {list(slots)}."
    )
    if not slots:
        text = f"Slot grid, block size {block_size}, block table {list(table)}: no token."
    if got is None:
        return text
    if not isinstance(got, list):
        return f"{text} Your function gave no list of slots."
    return f"{text} Your function gave {got[:24]}{' ...' if len(got) > 24 else ''}."
