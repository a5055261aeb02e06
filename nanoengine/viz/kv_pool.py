"""KV memory: which sequence's token lies in which slot, before and after a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nanoengine.viz.marks import frame
from nanoengine.viz.style import (
    EMPTY,
    FONT,
    INK,
    MUTED,
    NEW,
    RED,
    SEQUENCES,
    WRONG,
    Picture,
    canvas,
)
from nanoengine.viz.style import cell as draw_cell
from nanoengine.viz.style import label as draw_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_SLOTS = 96
_ROW = 24  # slots side by side
_LETTERS = "ABCDEFGH"


@dataclass(frozen=True, slots=True)
class Held:
    """What the pool holds of one sequence: tokens 0..tokens-1 in the blocks of its table."""

    block_table: Sequence[int]
    tokens: int


def kv_pool(
    before: Sequence[Held],
    after: Sequence[Held],
    num_blocks: int,
    block_size: int,
    names: Sequence[str] = (),
) -> Picture:
    """The pool before and after one step; a sequence has a letter, a colour and a hatch.

    What the step wrote has a thick frame. Sequences stand in the same order in both. names: what
    to call them in a line below each grid.

    >>> picture = kv_pool([Held([2], 3)], [Held([2], 4)], 3, 4)  # doctest: +SKIP
    """
    old, new = (_owners(held, block_size) for held in (before, after))
    written = {slot for slot in new if slot not in old}
    rows = -(-num_blocks * block_size // _ROW)
    figure, axes = canvas(0.5 + 2 * (0.35 + 0.62 * rows + 0.3 * len(names)), 2)
    _grid(axes[0], old, set(), num_blocks, block_size, "before the step")
    title = "after the step (thick frame: written by it)"
    _grid(axes[1], new, written, num_blocks, block_size, title)
    for ax, held in zip(axes, (before, after), strict=True):
        _name_rows(ax, held, names)
    return Picture(figure, _pool_alt(before, after, old, written, num_blocks, block_size))


def _owners(held: Sequence[Held], size: int) -> dict[int, tuple[int, int]]:
    """slot -> (sequence, position)."""
    return {
        one.block_table[p // size] * size + p % size: (index, p)
        for index, one in enumerate(held)
        for p in range(one.tokens)
    }


def _name_rows(ax: "Axes", held: Sequence[Held], names: Sequence[str]) -> None:
    """Below the grid, a line a sequence."""
    bottom, top = ax.get_ylim()
    for row, (one, name) in enumerate(zip(held, names, strict=False)):
        text = f"{_LETTERS[row % len(_LETTERS)]}  {name}: {one.tokens} tokens in the cache, block "
        text += f"table {list(one.block_table)}"
        draw_label(ax, 0, bottom + 0.5 + 0.8 * row, text, align="left")
    ax.set_ylim(bottom + 0.4 + 0.8 * len(names), top)


def _grid(
    ax: "Axes",
    owners: Mapping[int, tuple[int, int]],
    written: set[int],
    num_blocks: int,
    size: int,
    title: str,
) -> None:
    per_row = max(1, _ROW // size)
    for block in range(min(num_blocks, _MAX_SLOTS // size)):
        x0, y0 = (block % per_row) * (size + 0.6), (block // per_row) * 2.0
        draw_label(ax, x0 + size / 2, y0 - 0.35, f"block {block}", size=FONT - 1, colour=MUTED)
        for offset in range(size):
            owner = owners.get(block * size + offset)
            if owner is None:
                draw_cell(ax, x0 + offset, y0, "", EMPTY)
                continue
            role = SEQUENCES[owner[0] % len(SEQUENCES)]
            text = f"{_LETTERS[owner[0] % len(_LETTERS)]}{owner[1]}"
            draw_cell(ax, x0 + offset, y0, text, role, small=len(text) > 2)
            if block * size + offset in written:
                frame(ax, x0 + offset, y0)
    rows = -(-min(num_blocks, _MAX_SLOTS // size) // per_row)
    ax.set_xlim(-0.2, per_row * (size + 0.6))
    ax.set_ylim(2.0 * rows - 0.8, -1.6)
    draw_label(ax, 0, -1.2, title, align="left", colour=INK)


def _pool_alt(
    before: Sequence[Held],
    after: Sequence[Held],
    old: Mapping[int, tuple[int, int]],
    written: set[int],
    num_blocks: int,
    size: int,
) -> str:
    parts = []
    for index, (one, two) in enumerate(zip(before, after, strict=True)):
        letter = _LETTERS[index % len(_LETTERS)]
        parts.append(
            f"sequence {letter} in blocks {list(two.block_table)} grows from {one.tokens} to "
            f"{two.tokens} tokens"
        )
    return (
        f"KV memory of {num_blocks} blocks of {size} before and after one step: "
        f"{'; '.join(parts)}. The step wrote slots {sorted(written)} and left the other "
        f"{len(old)} used slots as they were."
    )


def slot_owners(
    right: Mapping[int, str], blocks: int, size: int, *, got: Mapping[int, str] | None = None
) -> Picture:
    """Which token's row each slot of a small cache should hold; got: a student's, below it.

    A slot without an entry keeps what it held. Differences are crossed.
    """
    figure, axes = canvas(1.1 if got is None else 2.0, 1 if got is None else 2)
    _owner_row(axes[0], right, None, blocks, size, "what the slots should hold (empty: unchanged)")
    text = f"Slots of {blocks} blocks of {size} should hold {dict(sorted(right.items()))}."
    if got is not None:
        _owner_row(axes[1], got, right, blocks, size, "yours (crossed: differs)")
        wrong = sorted(s for s in {*right, *got} if right.get(s) != got.get(s))
        text += f" Yours hold {dict(sorted(got.items()))}: slots {wrong} differ."
    return Picture(figure, text)


def _owner_row(
    ax: "Axes",
    mine: Mapping[int, str],
    right: Mapping[int, str] | None,
    blocks: int,
    size: int,
    title: str,
) -> None:
    shown = min(blocks, _MAX_SLOTS // 2 // size)
    width = shown * (size + 0.6)
    small = width > 30
    draw_label(ax, 0, -1.2, title, align="left", colour=MUTED if right is None else RED)
    for block in range(shown):
        x0 = block * (size + 0.6)
        draw_label(ax, x0 + size / 2, -0.4, f"block {block}", size=FONT - 1, colour=MUTED)
        for offset in range(size):
            slot = block * size + offset
            text: Any = mine.get(slot, "")
            role = NEW if text else EMPTY
            if right is not None and right.get(slot, "") != text:
                role = WRONG
            draw_cell(ax, x0 + offset, 0, text, role, small=small)
            if not small:
                draw_label(ax, x0 + offset + 0.5, 1.3, str(slot), size=FONT - 1, colour=MUTED)
    ax.set_xlim(-0.2, max(width, 20))
    ax.set_ylim(1.7, -1.6)
