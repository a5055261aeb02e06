"""Tensor parallelism: which weight is cut along which axis, and one step on several ranks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from nanoengine.viz.marks import line
from nanoengine.viz.style import (
    EMPTY,
    FONT,
    INK,
    MUTED,
    NEW,
    PAPER,
    SEQUENCES,
    WRONG,
    Picture,
    Role,
    canvas,
)
from nanoengine.viz.style import cell as draw_cell
from nanoengine.viz.style import label as draw_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TALLEST = 4.4  # of a weight's drawing
_WIDEST = 2.6
_SCALE = 0.4  # true proportions would leave nothing of the small ones to see
_GAP = 1.0


class Cut(NamedTuple):
    """One rank's part of a weight [rows, columns]: what of which axis, 0 or 1, it keeps."""

    rank: int
    axis: int
    start: int
    stop: int


class CutWeight(NamedTuple):
    """A weight, its stacked projections' names and sizes, and every rank's parts of it."""

    name: str
    shape: tuple[int, int]
    stacked: tuple[tuple[str, int], ...]
    cuts: tuple[Cut, ...]
    behind: str = ""  # what the ranks do after it


def weight_cuts(weights: Sequence[CutWeight]) -> Picture:
    """Each weight as a rectangle, outputs downwards and inputs to the right; parts by rank."""
    figure, axes = canvas(3.9)
    ax = axes[0]
    tall = max(w.shape[0] for w in weights)
    wide = max(w.shape[1] for w in weights)
    x = 0.0
    for weight in weights:
        height = _TALLEST * (weight.shape[0] / tall) ** _SCALE
        width = _WIDEST * (weight.shape[1] / wide) ** _SCALE
        _weight(ax, weight, x, width, height)
        x += width + _GAP
    text = "in each box: the rank that keeps it (proportions are softened)"
    draw_label(ax, 0, -1.5, text, align="left", colour=MUTED)
    ax.set_xlim(-0.2, x)
    ax.set_ylim(_TALLEST + 1.2, -1.8)
    return Picture(figure, _cuts_alt(weights))


def _weight(ax: "Axes", weight: CutWeight, x: float, width: float, height: float) -> None:
    rows, columns = weight.shape
    shared: dict[tuple[int, int, int], list[int]] = {}
    for rank, axis, start, stop in weight.cuts:
        shared.setdefault((axis, start, stop), []).append(rank)
    for (axis, start, stop), ranks in shared.items():
        role = SEQUENCES[ranks[0] % len(SEQUENCES)]
        name = "+".join(map(str, ranks))
        if axis == 0:
            top, deep = height * start / rows, height * (stop - start) / rows
            _box(ax, x, top, width, deep, role, name)
        else:
            left, across = width * start / columns, width * (stop - start) / columns
            _box(ax, x + left, 0, across, height, role, name)
    at = 0
    for index, (part, size) in enumerate(weight.stacked):
        if index:
            y = height * at / rows
            line(ax, (x - 0.1, y), (x + width + 0.1, y), width=2.2)
        if len(weight.stacked) > 1:
            middle = height * (at + size / 2) / rows
            draw_label(ax, x - 0.1, middle, part, align="right", size=FONT - 1)
        at += size
    draw_label(ax, x + width / 2, -0.75, weight.name, bold=True, size=FONT - 1)
    draw_label(ax, x + width / 2, -0.3, f"{rows} x {columns}", colour=MUTED, size=FONT - 1)
    axis_word = "rows cut" if weight.cuts[0].axis == 0 else "columns cut"
    draw_label(ax, x + width / 2, height + 0.3, axis_word, size=FONT - 1)
    if weight.behind:
        draw_label(ax, x + width / 2, height + 0.75, f"then {weight.behind}", size=FONT - 1)


def _box(
    ax: "Axes", x: float, y: float, width: float, height: float, role: Role, text: str
) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(
        Rectangle(
            (x, y), width, height, facecolor=role.face, edgecolor="#00000030", hatch=role.hatch
        )
    )
    ax.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=INK, linewidth=0.9))
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.1}
    if height > 0.16:
        draw_label(ax, x + width / 2, y + height / 2, text, size=FONT - 1, box=box)


def _cuts_alt(weights: Sequence[CutWeight]) -> str:
    ranks = 1 + max(cut.rank for weight in weights for cut in weight.cuts)
    texts = []
    for weight in weights:
        rows, columns = weight.shape
        axis = weight.cuts[0].axis
        own = sum(cut.stop - cut.start for cut in weight.cuts if cut.rank == 0)
        part = f"{own} x {columns}" if axis == 0 else f"{rows} x {own}"
        what = "rows" if axis == 0 else "columns"
        behind = f", then {weight.behind}" if weight.behind else ""
        texts.append(
            f"{weight.name} [{rows}, {columns}] is cut by {what}, rank 0 keeps {part}{behind}"
        )
    return f"Weights on {ranks} ranks: {'; '.join(texts)}."


# -- a stacked shard ---------------------------------------------------------------------------


def stacked_rows(
    slices: Sequence[Sequence[int]],
    sizes: Sequence[int],
    part: int,
    right: Sequence[str],
    got: Sequence[str],
) -> Picture:
    """The projections on disk, and the shard's rows: where each should come from, and comes.

    right, got: the name of each row's origin, "row 2 of part 1", or "".
    """
    figure, axes = canvas(2.6, 3)
    for ax, title in zip(axes, ("on disk", "the shard should hold", "yours"), strict=True):
        ax.set_xlim(-0.2, max(sum(sizes) + len(sizes), 14))
        ax.set_ylim(1.3, -0.7)
        draw_label(ax, 0, -0.4, title, align="left", colour=MUTED)
    x = 0
    for number, (size, (start, stop)) in enumerate(zip(sizes, slices, strict=True)):
        for row in range(size):
            role = NEW if number == part and start <= row < stop else EMPTY
            draw_cell(axes[0], x, 0, f"{number}.{row}", role, small=True)
            x += 1
        x += 1
    for row, (wanted, given) in enumerate(zip(right, got, strict=True)):
        draw_cell(axes[1], row, 0, _short(wanted), NEW if wanted else EMPTY, small=True)
        role = WRONG if wanted != given else NEW if given else EMPTY
        draw_cell(axes[2], row, 0, _short(given), role, small=True)
    wrong = [i for i, (a, b) in enumerate(zip(right, got, strict=True)) if a != b]
    alt = (
        f"Part {part} of {len(sizes)} projections: this rank's rows are "
        f"{list(slices[part])}. Rows {wrong} of your shard differ."
    )
    return Picture(figure, alt)


def _short(name: str) -> str:
    words = name.split()
    return f"{words[4]}.{words[1]}" if len(words) == 5 else ("?" if name else "")


# -- one step on several ranks -----------------------------------------------------------------


class Span(NamedTuple):
    """What a rank did from `start` to `end` (microseconds from the step's beginning)."""

    rank: int
    what: str
    start: float
    end: float


_LOOKS = {
    "write": NEW,
    "read": NEW,
    "run": SEQUENCES[0],
    "sample": SEQUENCES[2],
    "wait": EMPTY,
    "collective": Role("#c9c9c9", hatch="////"),
}
_LANE = 2.1


def step_timeline(spans: Sequence[Span], source: str = "") -> Picture:
    """One lane a rank: write or wait and read, then the run, with its collectives hatched.

    source: where it ran, for a recorded step.
    """
    ranks = 1 + max(span.rank for span in spans)
    figure, axes = canvas(0.9 + 0.75 * ranks + 0.3 * bool(source))
    ax = axes[0]
    end = max(span.end for span in spans)
    scale = 20.0 / end
    order = ("wait", "run", "write", "read", "sample", "collective")
    for span in sorted(spans, key=lambda s: order.index(_kind(s))):
        y, kind = span.rank * _LANE, _kind(span)
        start = max(0.0, span.start)
        width = (span.end - start) * scale
        thin = kind in ("collective", "sample")
        _span(ax, start * scale, y + 0.18 * thin, width, 1 - 0.36 * thin, _LOOKS[kind])
        if not thin and width > 1.4:
            box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
            draw_label(ax, start * scale + width / 2, y + 1.3, kind, size=FONT - 1, box=box)
    for rank in range(ranks):
        draw_label(ax, -0.3, rank * _LANE + 0.5, f"rank {rank}", align="right", bold=True)
    for tick in range(5):
        x = 20.0 * tick / 4
        bottom = ranks * _LANE - 0.2
        line(ax, (x, bottom), (x, bottom + 0.2), colour=MUTED)
        draw_label(ax, x, bottom + 0.55, f"{end * tick / 4:,.0f} µs", size=FONT - 1, colour=MUTED)
    _legend(ax, ranks * _LANE + 1.3)
    ax.set_xlim(-2.4, 20.4)
    below = ranks * _LANE + 2.6
    draw_label(ax, 0, below, source, align="left", size=FONT - 1, colour=MUTED)
    ax.set_ylim(below + 0.6 * bool(source), -0.4)
    return Picture(figure, f"{_timeline_alt(spans, ranks, end)} {source}".strip())


def _kind(span: Span) -> str:
    return span.what if span.what in _LOOKS else "collective"


def _span(ax: "Axes", x: float, y: float, width: float, height: float, role: Role) -> None:
    from matplotlib.patches import Rectangle

    patch = Rectangle(
        (x, y), max(width, 0.03), height, facecolor=role.face, edgecolor=INK, hatch=role.hatch,
        linewidth=0.7,
    )  # fmt: skip
    ax.add_patch(patch)


def _legend(ax: "Axes", y: float) -> None:
    names = {
        "write": "write, read: the message",
        "run": "run: its part of the model",
        "collective": "together: a collective",
        "sample": "sample",
    }
    for x, (kind, text) in zip((0.0, 6.3, 12.6, 18.3), names.items(), strict=True):
        _span(ax, x, y, 0.5, 0.6, _LOOKS[kind])
        draw_label(ax, x + 0.65, y + 0.3, text, align="left", size=FONT - 1)


def _timeline_alt(spans: Sequence[Span], ranks: int, end: float) -> str:
    def total(rank: int, *kinds: str) -> float:
        return sum(s.end - s.start for s in spans if s.rank == rank and _kind(s) in kinds)

    count = sum(s.rank == 0 and _kind(s) == "collective" for s in spans)
    parts = [
        f"rank 0 writes the message in {total(0, 'write'):.0f} us and runs its part in "
        f"{total(0, 'run'):.0f} us, {total(0, 'collective'):.0f} of them in {count} collectives"
    ]
    for rank in range(1, ranks):
        parts.append(
            f"rank {rank} reads it in {total(rank, 'read'):.0f} us and runs its part in "
            f"{total(rank, 'run'):.0f} us"
        )
    return f"One step on {ranks} ranks, {end:.0f} microseconds: {'; '.join(parts)}."
