"""A message in shared memory, piece by piece: the header's fields and int32 values behind it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nanoengine.viz.marks import bracket
from nanoengine.viz.style import CACHED, EMPTY, FONT, MUTED, NEW, RED, WRONG, Picture, canvas
from nanoengine.viz.style import cell as draw_cell
from nanoengine.viz.style import label as draw_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIELDS = ("MAGIC", "number", "kind", "total", "start", "length")
_WIDE = 1.7  # of a header's field
_SHOWN = 8  # values of a piece, and pieces of a message
_ITEM = 4

Piece = Mapping[str, Any]


def frame_layout(
    pieces: Sequence[Piece], *, room: int, got: Sequence[Piece] | None = None
) -> Picture:
    """The buffer after each piece. room: bytes behind the header. got: a student's pieces.

    A piece: {"header": the six numbers, "body": the bytes' values}.
    """
    rows = min(len(pieces), _SHOWN)
    mine = [] if got is None else list(got)[:_SHOWN]
    figure, axes = canvas(0.8 + 0.42 * (rows + len(mine)), 1 if got is None else 2)
    _panel(axes[0], pieces[:rows], None, room, "the shared memory after each piece")
    if got is not None:
        _panel(axes[1], mine, pieces, room, "yours (crossed: differs)")
    return Picture(figure, _alt(pieces, room, got))


def _panel(
    ax: "Axes", pieces: Sequence[Piece], right: Sequence[Piece] | None, room: int, title: str
) -> None:
    cells = min(_SHOWN, max(1, room // _ITEM))
    draw_label(ax, 0, -1.35, title, align="left", colour=MUTED if right is None else RED)
    for index, name in enumerate(FIELDS):
        draw_label(ax, (index + 0.5) * _WIDE, -0.35, name, size=FONT - 1, colour=MUTED)
    bracket(ax, 0, 6 * _WIDE, 1.5 * len(pieces) + 0.1, "header, 24 bytes")
    left = 6 * _WIDE + 0.2
    bracket(ax, left, left + cells, 1.5 * len(pieces) + 0.1, f"room for {room} bytes")
    for row, piece in enumerate(pieces):
        wanted = right[row] if right is not None and row < len(right) else None
        y = 1.5 * row
        for index, value in enumerate(piece["header"]):
            differs = right is not None and (wanted is None or wanted["header"][index] != value)
            text = _letters(value) if index == 0 else str(value)
            role = WRONG if differs else CACHED
            draw_cell(ax, index * _WIDE, y, text[:10], role, width=_WIDE, small=True)
        values = _values(piece["body"])
        due = _values(wanted["body"]) if wanted is not None else values
        for index in range(cells):
            text = str(values[index]) if index < len(values) else ""
            other = text and (index >= len(due) or due[index] != values[index])
            role = WRONG if other else NEW if text else EMPTY
            draw_cell(ax, left + index, y, text[:6], role, small=True)
        if len(values) > cells:
            draw_label(ax, left + cells + 0.3, y + 0.5, "...", align="left")
    ax.set_xlim(-0.2, left + _SHOWN + 1)
    ax.set_ylim(1.5 * max(1, len(pieces)) + 0.9, -1.8)


def _letters(magic: int) -> str:
    """MAGIC as the four letters it is, or as a number."""
    data = (magic % (1 << 32)).to_bytes(_ITEM, "little")
    return data.decode() if data.isalpha() else f"{magic:#x}"


def _values(body: Sequence[int]) -> list[int]:
    """A piece's bytes as int32 values; what is left over is not shown."""
    whole = bytes(body[: len(body) // _ITEM * _ITEM])
    return [
        int.from_bytes(whole[i : i + _ITEM], "little", signed=True)
        for i in range(0, len(whole), _ITEM)
    ]


def _alt(pieces: Sequence[Piece], room: int, got: Sequence[Piece] | None) -> str:
    total = pieces[0]["header"][3] if pieces else 0
    text = (
        f"A message of {total} bytes in {len(pieces)} piece{'s' * (len(pieces) != 1)} through a "
        f"buffer with room for {room} bytes behind a header of 24: the pieces start at bytes "
        f"{[p['header'][4] for p in pieces[:_SHOWN]]} and hold "
        f"{[p['header'][5] for p in pieces[:_SHOWN]]} bytes."
    )
    if got is None:
        return text
    headers = [list(p["header"]) for p in got[:_SHOWN]]
    return f"{text} Your headers: {[h[1:] for h in headers]} behind MAGIC."
