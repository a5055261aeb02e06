"""CUDA graphs: a padded bucket, what bucket policies waste, and a step launched or replayed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nanoengine.viz.style import (
    EMPTY,
    FILLING,
    FONT,
    INK,
    MUTED,
    NEW,
    RED,
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

_COLUMNS = 16  # rows of a bucket side by side
_MAX_ROWS = 64
_CELL_HEIGHT = 1.35
_MAX_BOXES = 12  # buckets in the row of buckets
_LIVE = SEQUENCES[0]


# -- one bucket --------------------------------------------------------------------------------


def padded_bucket(
    batch: int,
    bucket: int,
    slots: Sequence[int],
    lengths: Sequence[int],
    *,
    buckets: Sequence[int] = (),
    got: Mapping[str, Sequence[int]] | None = None,
) -> Picture:
    """A bucket's rows, each with its slot over its context length; padded rows are hatched.

    slots, lengths: of all `bucket` rows. buckets: drawn above, with this one marked. got: a
    student's slot_mapping and context_lens, drawn below; rows that differ are crossed.
    """
    right = list(zip(slots, lengths, strict=True))
    lines = -(-min(bucket, _MAX_ROWS) // _COLUMNS)
    panels = 1 if got is None else 2
    figure, axes = canvas((0.9 + 0.5 * lines) * panels + (0.4 if buckets else 0), panels)
    _rows(axes[0], batch, right, None, buckets)
    mine = None
    if got is not None:
        mine = list(zip(got["slot_mapping"], got["context_lens"], strict=True))
        _rows(axes[1], batch, mine, right, ())
    return Picture(figure, _bucket_alt(batch, bucket, right, mine))


def _rows(
    ax: "Axes",
    batch: int,
    rows: Sequence[tuple[int, int]],
    right: Sequence[tuple[int, int]] | None,
    buckets: Sequence[int],
) -> None:
    bucket = len(rows)
    top = 0.0
    if buckets:
        _bucket_row(ax, buckets, bucket)
        top = 2.6
    text = f"the {bucket} rows of the graph: slot over context length (hatched: padding)"
    if right is not None:
        text = "yours (crossed: differs)"
    draw_label(ax, 0, top - 0.5, text, align="left", colour=MUTED if right is None else RED)
    for row, (slot, length) in enumerate(rows[:_MAX_ROWS]):
        x, y = row % _COLUMNS, top + row // _COLUMNS * (_CELL_HEIGHT + 0.25)
        role = _LIVE if row < batch else FILLING
        if right is not None and right[row] != (slot, length):
            role = WRONG
        _tall_cell(ax, x, y, role, str(slot), str(length))
    lines = -(-min(bucket, _MAX_ROWS) // _COLUMNS)
    end = top + lines * (_CELL_HEIGHT + 0.25)
    if bucket > _MAX_ROWS:
        draw_label(ax, 0, end + 0.3, f"... and {bucket - _MAX_ROWS} more rows", align="left")
    ax.set_xlim(-0.2, _COLUMNS + 0.2)
    ax.set_ylim(end + 0.6, -1.1)


def _tall_cell(ax: "Axes", x: float, y: float, role: Role, upper: str, lower: str) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(
        Rectangle((x, y), 1, _CELL_HEIGHT, facecolor=role.face, edgecolor="#00000030",
                  hatch=role.hatch)
    )  # fmt: skip
    ax.add_patch(Rectangle((x, y), 1, _CELL_HEIGHT, fill=False, edgecolor=role.edge, linewidth=0.8))
    box = {"facecolor": role.face, "edgecolor": "none", "pad": 0.6} if role.hatch else None
    for text, place in ((upper, 0.3), (lower, 0.72)):
        draw_label(ax, x + 0.5, y + place * _CELL_HEIGHT, text, size=FONT - 1, box=box)


def _bucket_row(ax: "Axes", buckets: Sequence[int], chosen: int) -> None:
    """The list of buckets, with the chosen one marked by colour, a thick frame and bold text."""
    shown: list[int | None] = list(buckets)
    if len(shown) > _MAX_BOXES:
        place = buckets.index(chosen)
        near = sorted({*range(min(9, max(place + 2, 5))), place})
        shown = [*(buckets[i] for i in near[: _MAX_BOXES - 2]), None, buckets[-1]]
    draw_label(ax, 0, -0.5, "buckets: one graph each", align="left", colour=MUTED)
    for x, size in enumerate(shown):
        if size is None:
            draw_label(ax, x * 1.25 + 0.55, 0.5, "...")
            continue
        draw_cell(ax, x * 1.25, 0, "", NEW if size == chosen else EMPTY, width=1.1)
        if size == chosen:
            ax.plot(
                [x * 1.25, x * 1.25 + 1.1, x * 1.25 + 1.1, x * 1.25, x * 1.25],
                [0, 0, 1, 1, 0],
                color=INK,
                linewidth=2.4,
            )
        draw_label(ax, x * 1.25 + 0.55, 0.5, str(size), bold=size == chosen)


def _bucket_alt(
    batch: int,
    bucket: int,
    right: Sequence[tuple[int, int]],
    mine: Sequence[tuple[int, int]] | None,
) -> str:
    who = f"{batch} sequence{'s' if batch > 1 else ''} in the graph of bucket {bucket}"
    text = f"{who}: no row is padding."
    if batch < bucket:
        ends = f"Row {batch}" if batch == bucket - 1 else f"Rows {batch} to {bucket - 1}"
        slot, length = right[batch]
        text = (
            f"{who}, {_count(bucket - batch)} of padding. "
            f"{ends}: slot {slot}, context length {length}."
        )
    if mine is None:
        return text
    wrong = [row for row, pair in enumerate(mine) if pair != right[row]]
    if not wrong:
        return f"{text} Yours: the same slots and lengths."
    slot, length = mine[wrong[0]]
    differ = f"{_count(len(wrong))} with other numbers"
    return f"{text} Yours: {differ}; row {wrong[0]} has slot {slot}, context length {length}."


def _count(rows: int) -> str:
    return f"{rows} row{'s' if rows > 1 else ''}"


# -- policies ----------------------------------------------------------------------------------


class Waste(NamedTuple):
    """What a policy costs: its graphs; of the rows it computes, the part that is padding, on
    average over all batch sizes and at worst; the batch sizes that find no graph.
    """

    graphs: int
    mean: float
    worst: float
    worst_batch: int
    missing: list[int]


def waste_of(buckets: Sequence[int], largest: int) -> Waste:
    """The waste of ascending buckets over batches of 1 to `largest` sequences."""
    shares = {size: share for size, share in _shares(buckets, largest) if share is not None}
    missing = [size for size in range(1, largest + 1) if size not in shares]
    worst = max(shares, key=lambda size: shares[size])
    mean = sum(shares.values()) / len(shares)
    return Waste(len(buckets), mean, shares[worst], worst, missing)


def _shares(buckets: Sequence[int], largest: int) -> list[tuple[int, float | None]]:
    found: list[tuple[int, float | None]] = []
    for size in range(1, largest + 1):
        bucket = next((b for b in buckets if b >= size), None)
        found.append((size, None if bucket is None else (bucket - size) / bucket))
    return found


def padding_waste(policies: Mapping[str, Sequence[int]], largest: int) -> Picture:
    """Of the rows that a step computes, the part that is padding, over the batch size.

    policies: name -> ascending buckets. A batch that finds no graph leaves a gap in its line.
    """
    figure, axes = canvas(0.5 + 1.05 * len(policies), len(policies))
    said = []
    for ax, (name, buckets) in zip(axes, policies.items(), strict=True):
        waste = waste_of(buckets, largest)
        text = f"{name}: {waste.graphs} graphs, {waste.mean:.0%} on average"
        _waste_panel(ax, text, _shares(buckets, largest))
        said.append(f"{text}, at worst {waste.worst:.0%} at a batch of {waste.worst_batch}")
        if waste.missing:
            ends = f"{waste.missing[0]} to {waste.missing[-1]}"
            said[-1] += f"; batches of {ends} find no graph"
    axes[-1].set_xlabel("sequences in the batch", fontsize=FONT)
    axes[len(axes) // 2].set_ylabel("padding (% of rows)", fontsize=FONT)
    return Picture(figure, f"Padding over batches of 1 to {largest}: {'. '.join(said)}.")


def _waste_panel(ax: "Axes", title: str, shares: Sequence[tuple[int, float | None]]) -> None:
    """One policy; all panels have one scale."""
    sizes = [size for size, _ in shares]
    parts = [float("nan") if share is None else 100 * share for _, share in shares]
    ax.set_axis_on()
    ax.invert_yaxis()
    ax.fill_between(sizes, 0, parts, facecolor=_LIVE.face, linewidth=0)
    ax.plot(sizes, parts, color=INK, linewidth=1)
    ax.set_xlim(1, sizes[-1])
    ax.set_ylim(0, 100)
    ax.set_yticks([0, 50, 100])
    ax.tick_params(labelsize=FONT - 1)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title, loc="right", fontsize=FONT, y=0.72)


# -- a step over time --------------------------------------------------------------------------


class Timeline(NamedTuple):
    """One run: (start, duration) in microseconds of each launch on the host and kernel on the GPU.

    ms: how long the run took, measured. note: one sentence on where the numbers are from.
    """

    name: str
    launches: Sequence[tuple[float, float]]
    kernels: Sequence[tuple[float, float]]
    ms: float
    note: str = ""

    @property
    def busy(self) -> float:
        """The part of the time in which the GPU computes."""
        return min(1.0, sum(length for _, length in self.kernels) / (1000 * self.ms))


def step_timeline(runs: Sequence[Timeline], until: float | None = None) -> Picture:
    """Host and GPU over time, a panel a run, on one scale; until: where to cut, microseconds."""
    cut = until or 1000 * max(run.ms for run in runs)
    figure, axes = canvas(1.25 * len(runs), len(runs))
    for ax, run in zip(axes, runs, strict=True):
        _lanes(ax, run, cut)
    said = [
        f"{run.name}: {len(run.launches)} launch{'es' if len(run.launches) > 1 else ''}, "
        f"{len(run.kernels)} kernels, {run.ms:.2f} ms, the GPU computes {run.busy:.0%} of it"
        for run in runs
    ]
    notes = " ".join(dict.fromkeys(run.note for run in runs if run.note))
    shown = "" if until is None else f" Drawn are the first {cut:.0f} microseconds."
    return Picture(figure, f"{'. '.join(said)}.{shown} {notes}".strip())


def _lanes(ax: "Axes", run: Timeline, cut: float) -> None:
    scale = _COLUMNS / cut
    title = f"{run.name}: {run.ms:.2f} ms in all, the GPU computes {run.busy:.0%} of it"
    draw_label(ax, 0, -0.55, title, align="left")
    for y, name, events, role in (
        (0.0, "host", run.launches, NEW),
        (1.3, "GPU", run.kernels, _LIVE),
    ):
        draw_label(ax, -0.2, y + 0.5, name, align="right")
        ax.plot([0, _COLUMNS], [y + 1, y + 1], color="#c4c4c4", linewidth=0.8)
        _boxes(ax, y, events, role, scale, cut)
    draw_label(ax, _COLUMNS, 2.75, f"{cut:.0f} µs", align="right", size=FONT - 1, colour=MUTED)
    draw_label(ax, 0, 2.75, "0", align="left", size=FONT - 1, colour=MUTED)
    ax.set_xlim(-1.4, _COLUMNS + 0.1)
    ax.set_ylim(3.2, -1.0)


def _boxes(
    ax: "Axes", y: float, events: Sequence[tuple[float, float]], role: Role, scale: float,
    cut: float,
) -> None:  # fmt: skip
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    shown: list[Any] = [
        Rectangle((start * scale, y), min(length, cut - start) * scale, 1)
        for start, length in events
        if start < cut
    ]
    ax.add_collection(PatchCollection(shown, facecolor=role.face, edgecolor=INK, linewidth=0.5))
