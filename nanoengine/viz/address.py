"""How slot_mapping finds a token's place: the sequence's blocks, and the same blocks in the cache.

The blocks of a sequence lie anywhere in the cache; its block table leads from the one to the other.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nanoengine.viz.marks import arrow, frame
from nanoengine.viz.style import (
    CACHED,
    EMPTY,
    FONT,
    INK,
    MUTED,
    NEW,
    PAPER,
    Picture,
    Role,
    canvas,
    cell,
    label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GAP = 0.7
_OTHERS = Role(PAPER, edge="#c4c4c4")
_CACHE_Y = 4.3
_SMALL_ABOVE = 18  # cells in a row, from which on their text is small
_LINE = 0.9


def address_map(
    block_table: Sequence[int],
    start: int,
    end: int,
    block_size: int,
    *,
    slots: Sequence[int] | None = None,
    example: int | None = None,
) -> Picture:
    """A sequence of `end` tokens above, the cache below; tokens [start, end) are written now.

    slots: where they go, for example from a student's function; None: worked out here.
    example: the token whose slot is worked out in words; None: the first in the last block but one
    that is written now.

    >>> picture = address_map([7, 2, 5], start=4, end=10, block_size=4)  # doctest: +SKIP
    """
    places = [block_table[p // block_size] * block_size + p % block_size for p in range(end)]
    if slots is not None:
        places[start:] = slots
    shown = _worked_token(start, end, block_size) if example is None else example
    figure, axes = canvas(3.3)
    ax = axes[0]
    ends = _logical(ax, block_table, start, end, block_size, shown)
    tops, width = _physical(ax, block_table, start, places, block_size, shown)
    for block, x in zip(block_table, ends, strict=True):
        arrow(ax, (x, 1.12), (tops[block], _CACHE_Y - 0.75))
    _words(ax, block_table, start, places, block_size, shown)
    ax.set_xlim(-0.2, max(width, 16) + 0.2)
    ax.set_ylim(_CACHE_Y + 4.6, -1.7)
    return Picture(figure, _alt(block_table, start, places, block_size, shown))


def _worked_token(start: int, end: int, size: int) -> int:
    """A token inside a block shows more than one at a border."""
    inside = [p for p in range(start, end) if p % size]
    return inside[len(inside) // 2 - 1] if inside else start


def _logical(
    ax: "Axes", table: Sequence[int], start: int, end: int, size: int, shown: int
) -> list[float]:
    """The sequence in its own order; returns the middle of each block."""
    label(ax, 0, -1.35, "the sequence, in its own order", align="left", colour=MUTED)
    small = len(table) * size > _SMALL_ABOVE
    middles = []
    for index, block in enumerate(table):
        x0 = index * (size + _GAP)
        middles.append(x0 + size / 2)
        text = f"block_table[{index}] = {block}" if size >= 3 else f"[{index}] = {block}"
        label(ax, x0 + size / 2, -0.45, text, bold=True)
        for offset in range(size):
            position = index * size + offset
            role = EMPTY if position >= end else CACHED if position < start else NEW
            text = "" if position >= end else f"t{position}"
            cell(ax, x0 + offset, 0, text, role, small=small)
            if position == shown:
                frame(ax, x0 + offset, 0)
    return middles


def _physical(
    ax: "Axes", table: Sequence[int], start: int, slots: Sequence[int], size: int, shown: int
) -> tuple[dict[int, float], float]:
    """The cache in its order, other sequences' blocks folded; the middle of each block, the end."""
    label(ax, 0, _CACHE_Y - 1.35, "the cache", align="left", colour=MUTED)
    tokens = {slot: position for position, slot in enumerate(slots)}
    small = len(table) * size > _SMALL_ABOVE
    x, before, middles = 0.0, -1, {}
    for block in sorted(table):
        x = _folded(ax, x, before + 1, block - 1)
        middles[block] = x + size / 2
        label(ax, x + size / 2, _CACHE_Y - 0.4, f"block {block}", bold=True)
        for offset in range(size):
            slot = block * size + offset
            position = tokens.get(slot)
            role = EMPTY if position is None else CACHED if position < start else NEW
            cell(ax, x + offset, _CACHE_Y, "" if position is None else f"t{position}", role,
                 small=small)  # fmt: skip
            colour = INK if position is not None and position >= start else MUTED
            label(ax, x + offset + 0.5, _CACHE_Y + 1.35, str(slot), size=FONT - 1, colour=colour)
            if position == shown:
                frame(ax, x + offset, _CACHE_Y)
        x, before = x + size + _GAP, block
    label(ax, x - _GAP + 0.25, _CACHE_Y + 1.35, "slot", size=FONT - 1, align="left", colour=MUTED)
    return middles, x + 0.6


def _folded(ax: "Axes", x: float, first: int, last: int) -> float:
    """Blocks that are not the sequence's, drawn as one narrow box; returns where to go on."""
    if first > last:
        return x
    text = str(first) if first == last else f"{first}\u2013{last}"
    cell(ax, x, _CACHE_Y, "", _OTHERS, width=1.1)
    label(ax, x + 0.55, _CACHE_Y + 0.5, text, size=FONT - 1, colour=MUTED)
    return x + 1.1 + _GAP


def _words(
    ax: "Axes", table: Sequence[int], start: int, slots: Sequence[int], size: int, shown: int
) -> None:
    index, offset = divmod(shown, size)
    block = table[index]
    lines = [
        f"t{shown}, framed:  {shown} // {size} = {index}  and  block_table[{index}] = {block};  "
        f"{shown} % {size} = {offset};  slot {block} x {size} + {offset} = {slots[shown]}",
        f"slot_mapping = {list(slots[start:])}",
    ]
    if start:
        lines.append(f"dotted: t0 to t{start - 1}, cached before this step, are not written again")
    for row, text in enumerate(lines):
        label(ax, 0, _CACHE_Y + 2.35 + _LINE * row, text, align="left", bold=row == 1)


def _alt(table: Sequence[int], start: int, slots: Sequence[int], size: int, shown: int) -> str:
    cached = f" {start} tokens are cached already." if start else ""
    return (
        f"A sequence of {len(slots)} tokens with block table {list(table)} and blocks of {size}: "
        f"tokens {start} to {len(slots) - 1} go to slots {list(slots[start:])}, for example token "
        f"{shown} to slot {slots[shown]}.{cached}"
    )
