"""One step of the engine: the five steps of `ModelRunner.run`, and the calls of a whole step."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nanoengine.viz.style import (
    BLUE,
    CACHED,
    EMPTY,
    FILLING,
    FONT,
    INK,
    MUTED,
    NEW,
    SEQUENCES,
    Picture,
    Role,
    canvas,
)
from nanoengine.viz.style import label as draw_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nanoengine.engine.record import StepRecord

# -- the five steps ----------------------------------------------------------------------------

_BOX, _COLUMN, _TEXT = 4.2, 8.0, 4.6  # widths of a step's box and of a column; where text begins
_COLUMNS = 2  # of texts beside a box
_LINE_HEIGHT, _GAP = 0.72, 0.55  # of a line of text; between two boxes
_SHOWN_ROWS, _SHOWN = 3, 6  # rows of text, values of a list
_MODEL, _HOST = SEQUENCES[2], EMPTY  # the two steps that call the model have a hatch


def five_steps(record: "StepRecord", hidden_size: int, texts: Sequence[str] = ()) -> Picture:
    """A recorded run as five boxes, with the numbers that went through them.

    texts: what the sampled tokens say, one a row; "" where nothing was emitted.
    """
    boxes = _steps(record, hidden_size, texts)
    heights = [max(-(-len(lines) // _COLUMNS), 1.5) * _LINE_HEIGHT for _, lines in boxes]
    total = sum(heights) + _GAP * (len(boxes) - 1)
    width = _TEXT + _COLUMNS * _COLUMN - 1.0
    figure, (ax,) = canvas(0.36 * (total + 1.6))
    y = 0.0
    for index, ((title, lines), height) in enumerate(zip(boxes, heights, strict=True)):
        role = _MODEL if index in (1, 2) else _HOST
        _step(ax, y, f"{index + 1}  {title}", lines, role, height)
        if index:
            _arrow(ax, y - _GAP, y)
        y += height + _GAP
    kind = "prefill" if record.batch.is_prefill else "decode"
    text = f"ModelRunner.run, step {record.step}: {kind} of {_count(record, 'sequence')}"
    _dashed(ax, -0.25, -0.35, width + 0.5, total + 0.7)
    draw_label(ax, -0.25, -0.8, text, align="left", bold=True)
    draw_label(ax, width + 0.25, -0.8, "dotted: calls the model", align="right", colour=MUTED)
    ax.set_xlim(-0.4, width + 0.4)
    ax.set_ylim(total + 0.5, -1.2)
    return Picture(figure, _steps_alt(record, kind, boxes))


class _Line(NamedTuple):
    name: str
    value: str


def _count(record: "StepRecord", noun: str) -> str:
    number = len(record.batch.items)
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _steps(
    record: "StepRecord", hidden_size: int, texts: Sequence[str]
) -> list[tuple[str, list[_Line]]]:
    """(title, lines) of each box."""
    lists: Any = record.inputs
    tokens = len(lists.input_ids)
    fields = ("cu_seqlens_q", "cu_seqlens_k") if record.batch.is_prefill else ("context_lens",)
    how = "eager" if record.bucket is None else f"replay of graph {record.bucket}"
    which = "of each one's last row" if record.batch.is_prefill else "of every row"
    logits = record.logits
    shape = list(logits.shape) if logits is not None else []
    largest = f"{float(logits[0].max()):.1f}" if logits is not None else ""
    ids = [_placeholder(token) for token in lists.input_ids]
    said = [_Line(f"row {i}", repr(text)) for i, text in enumerate(texts[:_SHOWN_ROWS]) if text]
    return [
        ("prepare", [
            _Line("input_ids", _some(ids)),
            _Line("positions", _some(lists.positions)),
            _Line("slot_mapping", _some(lists.slot_mapping)),
            *(_Line(name, _some(getattr(lists, name))) for name in fields),
        ]),
        ("run_model", [_Line(how, f"{tokens} rows"),
                       _Line("hidden states", f"[{tokens}, {hidden_size}]")]),
        ("compute_logits", [_Line(which, str(shape)), _Line("row 0's largest", largest)]),
        ("sample", [_Line("on rank 0 alone", _some(record.tokens)), *said]),
        ("reset", [_Line("context", "None"), _Line("also after", "an exception")]),
    ]  # fmt: skip


def _placeholder(token: int) -> str:
    """A token id; a negative one stands for a token that is still on the device."""
    return f"{token}" if token >= 0 else f"row {-token - 1}'s"


def _some(values: Sequence[Any]) -> str:
    """The first few of a list."""
    shown = ", ".join(str(value) for value in values[:_SHOWN])
    return f"[{shown}{', ...' if len(values) > _SHOWN else ''}]"


def _step(ax: "Axes", y: float, title: str, lines: list[_Line], role: Role, height: float) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(
        Rectangle((0, y), _BOX, height, facecolor=role.face, edgecolor="#00000030",
                  hatch=role.hatch)
    )  # fmt: skip
    ax.add_patch(Rectangle((0, y), _BOX, height, fill=False, edgecolor=INK, linewidth=1))
    plain = {"facecolor": role.face, "edgecolor": "none", "pad": 1.0} if role.hatch else None
    draw_label(ax, _BOX / 2, y + height / 2, title, bold=True, box=plain)
    rows = -(-len(lines) // _COLUMNS)
    top = y + (height - rows * _LINE_HEIGHT) / 2
    for index, (name, value) in enumerate(lines):
        column, row = divmod(index, rows)
        text = f"{name}  {value}" if value else name
        place = (_TEXT + column * _COLUMN, top + (row + 0.5) * _LINE_HEIGHT)
        draw_label(ax, *place, text, align="left", size=FONT - 1)


def _arrow(ax: "Axes", start: float, end: float) -> None:
    ax.annotate(
        "",
        (_BOX / 2, end),
        (_BOX / 2, start),
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.2, "shrinkA": 0, "shrinkB": 0},
    )


def _dashed(ax: "Axes", x: float, y: float, width: float, height: float) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(
        Rectangle((x, y), width, height, fill=False, edgecolor=BLUE, linestyle="--", linewidth=1.2)
    )


def _steps_alt(record: "StepRecord", kind: str, boxes: list[tuple[str, list[_Line]]]) -> str:
    parts = "; ".join(
        f"{number}, {title}: {', '.join(f'{name} {value}' for name, value in lines)}"
        for number, (title, lines) in enumerate(boxes, 1)
    )
    return (
        f"The five steps of a recorded {kind} run with {_count(record, 'sequence')}, from top to "
        f"bottom: {parts}. Steps 2 and 3 call the model."
    )


# -- the calls of a whole step -----------------------------------------------------------------


class Call(NamedTuple):
    """One call that was traced. depth: how many traced calls it is inside of.

    start, end: seconds since the step began. note: what it did, in a few words.
    """

    owner: str
    name: str
    depth: int
    start: float
    end: float
    note: str = ""

    @property
    def title(self) -> str:
        """`Scheduler.schedule`."""
        return f"{self.owner}.{self.name}"


_OWNERS = {
    "LLMEngine": EMPTY,
    "Scheduler": SEQUENCES[0],
    "BlockManager": NEW,
    "ModelRunner": FILLING,
    "model": SEQUENCES[2],
    "Sampler": SEQUENCES[3],
}
_TEXT_WIDTH, _TIME_WIDTH = 12.6, 7.0
_INDENT = 0.5


class _Row(NamedTuple):
    call: Call
    number: int
    ends: tuple[tuple[float, float], ...]


def call_chain(calls: Sequence[Call], source: str = "") -> Picture:
    """The calls of one step in their order, indented by depth, and when each of them ran.

    source: where it ran, for a recorded step.
    """
    rows = _merged(calls)
    total = max(call.end for call in calls)
    figure, (ax,) = canvas(0.5 + 0.27 * (len(rows) + bool(source)))
    for y, row in enumerate(rows):
        _call_text(ax, y, row)
        _call_times(ax, y, row, total)
    text = f"time, {1e3 * total:.2f} ms from left to right"
    draw_label(ax, _TEXT_WIDTH, -0.6, text, align="left", colour=MUTED, size=FONT - 1)
    draw_label(ax, 0, -0.6, "calls, in order", align="left", colour=MUTED, size=FONT - 1)
    ax.set_xlim(-0.1, _TEXT_WIDTH + _TIME_WIDTH + 0.2)
    draw_label(ax, 0, len(rows) + 0.6, source, align="left", colour=MUTED, size=FONT - 1)
    ax.set_ylim(len(rows) + 0.1 + bool(source), -1.0)
    return Picture(figure, f"{_chain_alt(rows, total)} {source}".strip())


def _merged(calls: Sequence[Call]) -> list[_Row]:
    """Calls of the same name in the same place, one row for all of them; runs stay apart."""
    rows: dict[tuple[str, ...], list[Call]] = {}
    path: list[str] = []
    for call in calls:
        own = f"{call.title} {call.note}" if call.name == "run" else call.title
        path = [*path[: call.depth], own]
        rows.setdefault(tuple(path), []).append(call)
    return [_row(same) for same in rows.values()]


def _row(same: list[Call]) -> _Row:
    note = same[0].note if len({call.note for call in same}) == 1 else ""
    times = tuple((call.start, call.end) for call in same)
    return _Row(same[0]._replace(note=note), len(same), times)


def _call_text(ax: "Axes", y: int, row: _Row) -> None:
    from matplotlib.patches import Rectangle

    role = _OWNERS.get(row.call.owner, CACHED)
    x = row.call.depth * _INDENT
    ax.add_patch(
        Rectangle((x, y + 0.14), 0.42, 0.72, facecolor=role.face, edgecolor=INK, hatch=role.hatch)
    )
    times = f" ×{row.number}" if row.number > 1 else ""
    note = f"  {row.call.note}" if row.call.note else ""
    draw_label(ax, x + 0.55, y + 0.5, row.call.title + times, align="left", size=FONT - 1)
    draw_label(ax, 7.0, y + 0.5, note, align="left", size=FONT - 1, colour=MUTED)


def _call_times(ax: "Axes", y: int, row: _Row, total: float) -> None:
    from matplotlib.patches import Rectangle

    role = _OWNERS.get(row.call.owner, CACHED)
    scale = _TIME_WIDTH / total
    ax.plot(
        [_TEXT_WIDTH, _TEXT_WIDTH + _TIME_WIDTH], [y + 1, y + 1], color="#e4e4e4", linewidth=0.5
    )
    for start, end in row.ends:
        width = max((end - start) * scale, 0.04)
        ax.add_patch(
            Rectangle(
                (_TEXT_WIDTH + start * scale, y + 0.2), width, 0.6,
                facecolor=role.face, edgecolor=INK, hatch=role.hatch, linewidth=0.6,
            )
        )  # fmt: skip


def _chain_alt(rows: Sequence[_Row], total: float) -> str:
    names = [f"{row.call.title}{f' {row.number} times' if row.number > 1 else ''}" for row in rows]
    own: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        own[row.call.title] += sum(end - start for start, end in row.ends)
    longest = max((row.call.title for row in rows if row.call.owner == "model"), default="",
                  key=lambda title: own[title])  # fmt: skip
    share = f"; {longest} takes {own[longest] / total:.0%} of it" if longest else ""
    return (
        f"The calls of one step in their order: {', '.join(names)}. The step takes "
        f"{1e3 * total:.2f} ms{share}."
    )
