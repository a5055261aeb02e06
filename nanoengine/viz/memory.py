"""GPU memory: how a card is carved, and which slice of the cache a layer got."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nanoengine.viz.marks import line
from nanoengine.viz.style import (
    BLUE,
    CACHED,
    EMPTY,
    FILLING,
    FONT,
    INK,
    MUTED,
    NEW,
    PAPER,
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

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_BAR = 14.0  # width of a whole card
_LEADER = 0.85  # between two labels of a bar
_RIGHT_PART = 0.62  # of a card: from there on a text ends where it would begin
_LETTER = 0.16  # width of a character, roughly
_MAX_LAYERS = 12  # columns that can be read
_BLOCKS = SEQUENCES[0]
_K_AND_V = (SEQUENCES[0], SEQUENCES[2])


def size(count: float) -> str:
    """Bytes as a short text: 28.0 MiB, 4.70 GiB."""
    for unit, name in _UNITS:
        if abs(count) >= unit:
            digits = 2 if unit == 1 << 30 else 1
            return f"{count / unit:,.{digits}f} {name}"
    return f"{count:,.0f} bytes"


# -- one card ----------------------------------------------------------------------------------


class _Part(NamedTuple):
    name: str
    size: int
    role: Role


def memory_bar(terms: Mapping[str, Any], *, blocks: int | None = None, got: Any = None) -> Picture:
    """One card as a bar: what is used, what is kept free, and what becomes KV blocks.

    terms: total, used, peak, current, block_bytes (bytes), utilization, and reserve.
    blocks: how many are carved; None: as many as fit. got: a student's number of blocks, drawn
    as a second bar.
    """
    fitting = max(0, _budget(terms)) // terms["block_bytes"] if blocks is None else blocks
    bars = [("one card, carved", fitting)]
    if isinstance(got, int) and got >= 0:
        bars.append(("with your number of blocks", got))
    figure, axes = canvas(2.7 * len(bars), len(bars))
    ends = [_bar(ax, terms, *bar, bar[1] != fitting) for ax, bar in zip(axes, bars, strict=True)]
    for ax in axes:  # one scale for both bars
        ax.set_xlim(-0.1, max(ends) + 0.1)
    return Picture(figure, _bar_alt(terms, fitting, got))


def _budget(terms: Mapping[str, Any]) -> int:
    growth = terms["peak"] - terms["current"]
    share = int(terms["total"] * terms["utilization"])
    return int(share - terms["used"] - growth - terms.get("reserve", 0))


def _parts(terms: Mapping[str, Any], blocks: int, wrong: bool) -> list[_Part]:
    growth = terms["peak"] - terms["current"]
    kv = f"{blocks:,} KV blocks of {size(terms['block_bytes'])}"
    parts = [
        _Part("used, by others and the CUDA context", terms["used"] - terms["current"], CACHED),
        _Part("used, allocated by us: the weights", terms["current"], NEW),
        _Part("peak - current: the activation spike, kept free", growth, FILLING),
        _Part("reserve, kept free", terms.get("reserve", 0), SEQUENCES[3]),
        _Part(kv, blocks * terms["block_bytes"], WRONG if wrong else _BLOCKS),
    ]
    return [part for part in parts if part.size > 0]


def _bar(ax: "Axes", terms: Mapping[str, Any], title: str, blocks: int, wrong: bool) -> float:
    """Draw one bar; returns where it ends."""
    scale = _BAR / terms["total"]
    draw_label(ax, 0, -0.75, title, align="left", colour=RED if wrong else MUTED)
    draw_cell(ax, 0, 0, "", EMPTY, width=_BAR)
    x, outside = 0.0, []
    for part in _parts(terms, blocks, wrong):
        width = part.size * scale
        text = f"{part.name}: {size(part.size)}"
        inside = len(text) * _LETTER < width
        draw_cell(ax, x, 0, text if inside else "", part.role, width=width)
        outside += [] if inside else [(x + width / 2, text)]
        x += width
    bottom = 1.8
    for middle, text in reversed(outside):
        _leader(ax, middle, bottom, text)
        bottom += _LEADER
    limit = _BAR * terms["utilization"]
    line(ax, (limit, -0.35), (limit, 1.15), colour=BLUE, width=2.2)
    text = f"total x utilization: {terms['utilization']:g} of {size(terms['total'])}"
    align = "right" if terms["utilization"] > _RIGHT_PART else "left"
    draw_label(ax, limit, -0.75, text, align=align, colour=BLUE)
    if not wrong:
        for row, text in enumerate(_sums(terms, blocks)):
            draw_label(ax, 0, bottom + 0.3 + row * _LEADER, text, align="left")
    ax.set_ylim(bottom + 1.6, -1.2)
    return max(x, _BAR)


def _leader(ax: "Axes", x: float, y: float, text: str) -> None:
    """A label on a line that leads down from its part; to the left of it in the right half."""
    right_half = x > _RIGHT_PART * _BAR
    line(ax, (x, 0.9), (x, y), (x + (-0.25 if right_half else 0.25), y), colour=INK)
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
    end, align = (x - 0.35, "right") if right_half else (x + 0.35, "left")
    draw_label(ax, end, y, text, align=align, box=paper)


def _sums(terms: Mapping[str, Any], blocks: int) -> tuple[str, str]:
    """The formula in names, and with its numbers."""
    names = "(utilization x total - used - (peak - current)"
    growth = size(terms["peak"] - terms["current"])
    numbers = f"({terms['utilization']:g} x {size(terms['total'])} - {size(terms['used'])}"
    numbers += f" - {growth}"
    if terms.get("reserve"):
        names += " - reserve"
        numbers += f" - {size(terms['reserve'])}"
    return (
        f"{names}) // block_bytes",
        f"= {numbers}) // {size(terms['block_bytes'])} = {blocks:,} blocks",
    )


def _bar_alt(terms: Mapping[str, Any], fitting: int, got: Any) -> str:
    text = (
        f"A card of {size(terms['total'])}, to be filled to {terms['utilization']:g}: "
        f"{size(terms['used'])} are used, {size(terms['peak'] - terms['current'])} are kept for "
        f"the activation spike, {size(terms.get('reserve', 0))} in reserve; "
        f"{fitting:,} blocks of {size(terms['block_bytes'])} fit, "
        f"{size(fitting * terms['block_bytes'])} in all."
    )
    return text if got is None else f"{text} You gave {got}."


# -- one tensor, many layers -------------------------------------------------------------------


def cache_binding(
    shape: Sequence[int], got: Sequence[Sequence[str]] | None = None, block: int | None = None
) -> Picture:
    """The one tensor as K and V rows and a column a layer; what each layer is bound to.

    shape: layers, blocks, block_size, kv heads, head_dim. got: [[K, V] of each layer] in words.
    block: mark this block in every slice.
    """
    layers, blocks = min(shape[0], _MAX_LAYERS), shape[1]
    figure, axes = canvas(1.7 if got is None else 2.9, 1 if got is None else 2)
    right = [[f"{kv} of layer {layer}" for kv in "KV"] for layer in range(shape[0])]
    title = f"kv_cache [2, {', '.join(map(str, shape))}]: a box a layer, cut into {blocks} blocks"
    if block is not None:
        title += f"; block {block} is a piece of every box"
    _slices(axes[0], layers, blocks, block, title)
    if got is not None:
        _bound(axes[1], layers, right, got)
    return Picture(figure, _binding_alt(shape, right, got, block))


def _slices(ax: "Axes", layers: int, blocks: int, block: int | None, title: str) -> None:
    width = 12.0 / max(layers, 3)
    draw_label(ax, 0, -1.0, title, align="left", colour=MUTED)
    for kv, name in enumerate("KV"):
        draw_label(ax, -0.2, kv * 1.4 + 0.5, f"{name}  kv_cache[{kv}]", align="right")
        for layer in range(layers):
            x = layer * width
            if kv == 0:
                draw_label(ax, x + width * 0.46, -0.35, f"layer {layer}", size=FONT - 1)
            step = width * 0.92 / blocks
            for index in range(blocks):
                role = NEW if index == block else _K_AND_V[kv]
                draw_cell(ax, x + index * step, kv * 1.4, "", role, width=step)
            if block is not None:
                centre = x + (block + 0.5) * step
                draw_label(ax, centre, kv * 1.4 + 0.5, str(block), size=FONT - 1)
    ax.set_xlim(-2.6, 12.1)
    ax.set_ylim(2.7, -1.4)


def _bound(
    ax: "Axes", layers: int, right: Sequence[Sequence[str]], got: Sequence[Sequence[str]]
) -> None:
    width = 12.0 / max(layers, 3)
    draw_label(ax, 0, -0.6, "your binding (crossed: another slice)", align="left", colour=RED)
    for kv, name in enumerate(("k_cache", "v_cache")):
        draw_label(ax, -0.2, kv * 1.4 + 0.5, name, align="right")
        for layer, given in enumerate(got[:layers]):
            role = _K_AND_V[kv] if given[kv] == right[layer][kv] else WRONG
            text = given[kv].replace(" of layer ", "") if layers > 4 else given[kv]
            draw_cell(ax, layer * width, kv * 1.4, text, role, width=width * 0.92, small=layers > 2)
    ax.set_xlim(-2.6, 12.1)
    ax.set_ylim(2.7, -1.0)


def _binding_alt(
    shape: Sequence[int],
    right: Sequence[Sequence[str]],
    got: Sequence[Sequence[str]] | None,
    block: int | None,
) -> str:
    text = f"One tensor, a slice of {shape[1]} blocks for K and for V of each of {shape[0]} layers."
    if block is not None:
        text += f" Block {block} is a piece of all {2 * shape[0]} slices."
    if got is None:
        return text
    wrong = [
        f"layer {layer} has {mine} instead of {wanted}"
        for layer, pair in enumerate(zip(right, got, strict=False))
        for wanted, mine in zip(*pair, strict=False)
        if wanted != mine
    ]
    return f"{text} Yours: {wrong[0] if wrong else 'every layer has its own slices'}."
