"""The prefix cache: sequences with the same beginning hold the same blocks.

Each block is known by its own tokens and by the block before it, so the blocks form a tree: one
path from the root is one sequence's block table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nanoengine.viz.marks import line
from nanoengine.viz.style import (
    EMPTY,
    FONT,
    INK,
    MUTED,
    SEQUENCES,
    Picture,
    Role,
    canvas,
    cell,
    label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TOKEN = 1.75  # width of a cell with a word in it
_GAP = 1.1
_ROW = 2.5
_LETTERS = "ABCDEFGH"
_SHARED = SEQUENCES[2]
_OWN = Role("#ffffff")


@dataclass(frozen=True, slots=True)
class Sharer:
    """A sequence: its block table, its tokens as texts, and how many of them it found cached."""

    block_table: Sequence[int]
    tokens: Sequence[str]
    reused: int


@dataclass
class _Node:
    """One block in the tree; row is where it is drawn, by the first sequence that has it."""

    row: int
    tokens: list[str]
    holders: list[int] = field(default_factory=list)
    parent: int | None = None
    depth: int = 0


def prefix_tree(sharers: Sequence[Sharer], block_size: int) -> Picture:
    """The blocks of all sequences as a tree; dotted blocks are held by more than one.

    >>> picture = prefix_tree([Sharer([0, 1], ["The", " dog"], 0)], 1)  # doctest: +SKIP
    """
    nodes = _tree(sharers, block_size)
    depth = max(len(s.block_table) for s in sharers)
    figure, axes = canvas(0.75 + 0.86 * len(sharers))
    ax = axes[0]
    entries = sum(len(sharer.block_table) for sharer in sharers)
    text = "a box is a block of the cache, a path is a block table: "
    text += f"{entries} entries in tables, {len(nodes)} blocks"
    label(ax, 0, -1.6, text, align="left", colour=MUTED)
    for block, node in nodes.items():
        _node(ax, block, node, nodes, block_size)
    for row, sharer in enumerate(sharers):
        x = len(sharer.block_table) * (block_size * _TOKEN + _GAP) - _GAP
        _path_end(ax, x, row, sharer, block_size)
    ax.set_xlim(-0.2, depth * (block_size * _TOKEN + _GAP) + 0.2)
    ax.set_ylim(len(sharers) * _ROW - 0.7, -2.0)
    return Picture(figure, _alt(sharers, nodes, block_size))


def _tree(sharers: Sequence[Sharer], size: int) -> dict[int, _Node]:
    nodes: dict[int, _Node] = {}
    for row, sharer in enumerate(sharers):
        parent = None
        for depth, block in enumerate(sharer.block_table):
            tokens = list(sharer.tokens[depth * size : (depth + 1) * size])
            node = nodes.setdefault(block, _Node(row, tokens, parent=parent, depth=depth))
            node.holders.append(row)
            parent = block
    return nodes


def _node(ax: "Axes", block: int, node: _Node, nodes: dict[int, _Node], size: int) -> None:
    width = size * _TOKEN
    x, y = node.depth * (width + _GAP), node.row * _ROW
    shared = len(node.holders) > 1
    role = _SHARED if shared else _OWN
    names = ", ".join(_LETTERS[i % len(_LETTERS)] for i in node.holders)
    text = f"block {block}" + (f", held by {names}" if shared else f", {names} alone")
    label(ax, x, y - 0.38, text, align="left", bold=shared, size=FONT - 0.5)
    for offset in range(size):
        filled = offset < len(node.tokens)
        word = node.tokens[offset].strip() if filled else ""
        cell(ax, x + offset * _TOKEN, y, word, role if filled else EMPTY, width=_TOKEN, small=True)
    if node.parent is not None:
        parent = nodes[node.parent]
        start = (parent.depth * (width + _GAP) + width, parent.row * _ROW + 0.5)
        middle = x - _GAP / 2
        line(ax, start, (middle, start[1]), (middle, y + 0.5), (x, y + 0.5), width=1.3)


def _path_end(ax: "Axes", x: float, row: int, sharer: Sharer, size: int) -> None:
    """Below a sequence's last block: its name, its table, what it did not have to compute."""
    left = x - size * _TOKEN
    text = f"{_LETTERS[row % len(_LETTERS)]}: table {list(sharer.block_table)}"
    text += f", {sharer.reused} of {len(sharer.tokens)} tokens found" if sharer.reused else ""
    label(ax, left, row * _ROW + 1.38, text, align="left", size=FONT - 0.5, colour=INK)


def _alt(sharers: Sequence[Sharer], nodes: dict[int, _Node], size: int) -> str:
    entries = sum(len(s.block_table) for s in sharers)
    shared = sorted(block for block, node in nodes.items() if len(node.holders) > 1)
    reused = ", ".join(
        f"{_LETTERS[i % len(_LETTERS)]} {s.reused} of {len(s.tokens)}"
        for i, s in enumerate(sharers)
    )
    return (
        f"Prefix cache with blocks of {size}: {len(sharers)} sequences have {entries} entries in "
        f"their block tables but take {len(nodes)} blocks of memory, since blocks {shared} are "
        f"shared. Tokens found in the cache: {reused}."
    )
