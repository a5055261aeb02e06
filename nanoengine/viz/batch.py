"""A packed prefill batch: chunks end to end, and the borders that tell them apart."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nanoengine.viz.style import FONT, INK, MUTED, RED, SEQUENCES, WRONG, Picture, canvas
from nanoengine.viz.style import cell as draw_cell
from nanoengine.viz.style import label as draw_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_TOKENS = 40
_ROWS = (("input_ids", 0.0), ("positions", 1.0), ("slot_mapping", 2.0))


def packed_batch(inputs: Any, *, got: Any = None) -> Picture:
    """The batch's tokens in a row with ids, positions and slots, and both cu_seqlens.

    inputs: PrefillInputs, or the same fields in a dict. got: a student's; drawn below, with the
    entries that differ crossed.
    """
    right = _fields(inputs)
    given = _fields(got) if got is not None else None
    figure, axes = canvas(2.1 if given is None else 4.1, 1 if given is None else 2)
    _panel(axes[0], right, None, "one packed batch: every column is a token")
    if given is not None:
        _panel(axes[1], given, right, "yours (crossed: differs)")
    return Picture(figure, _alt(right, given))


def _fields(inputs: Any) -> dict[str, list[Any]]:
    names = [*(name for name, _ in _ROWS), "cu_seqlens_q", "cu_seqlens_k"]
    found = inputs if isinstance(inputs, dict) else {n: getattr(inputs, n, None) for n in names}
    values = {name: found.get(name) for name in names}
    return {name: value if isinstance(value, list) else [] for name, value in values.items()}


def _owners(borders: Sequence[Any], count: int) -> list[int]:
    """Which sequence each packed token belongs to."""
    owner, owners = 0, []
    for token in range(count):
        while owner + 2 < len(borders) and token >= borders[owner + 1]:
            owner += 1
        owners.append(owner)
    return owners


def _panel(
    ax: "Axes", mine: dict[str, list[Any]], right: dict[str, list[Any]] | None, title: str
) -> None:
    count = min(max(len(mine[name]) for name, _ in _ROWS), _MAX_TOKENS)
    borders = (right or mine)["cu_seqlens_q"]
    owners = _owners(borders, count)
    draw_label(ax, 0, -1.1, title, align="left", colour=MUTED if right is None else RED)
    for name, y in _ROWS:
        draw_label(ax, -0.3, y + 0.5, name, align="right")
        for x, value in enumerate(mine[name][:count]):
            wanted = None if right is None else right[name]
            differs = wanted is not None and (x >= len(wanted) or wanted[x] != value)
            role = WRONG if differs else SEQUENCES[owners[x] % len(SEQUENCES)]
            draw_cell(ax, x, y, str(value), role, small=count > 16)
    for sequence, border in enumerate(borders):
        if isinstance(border, int) and border <= count:
            ax.plot([border, border], [-0.35, 3.2], color=INK, linewidth=1.6)
        if sequence + 1 < len(borders) and isinstance(border, int) and border < count:
            draw_label(ax, border + 0.1, -0.35, f"sequence {sequence}", align="left", size=FONT - 1)
    for row, name in enumerate(("cu_seqlens_q", "cu_seqlens_k")):
        colour = INK if right is None or right[name] == mine[name] else RED
        mark = "" if colour == INK else "  (differs)"
        text = f"{name} = {mine[name]}{mark}"
        draw_label(ax, 0, 3.7 + 0.8 * row, text, align="left", colour=colour)
    ax.set_xlim(-3.4, max(count, 14) + 0.3)
    ax.set_ylim(5.0, -1.6)


def _alt(right: dict[str, list[Any]], given: dict[str, list[Any]] | None) -> str:
    lengths = [
        b - a for a, b in zip(right["cu_seqlens_q"], right["cu_seqlens_q"][1:], strict=False)
    ]
    text = (
        f"Packed prefill batch of {len(lengths)} sequences with {lengths} tokens: "
        f"cu_seqlens_q {right['cu_seqlens_q']}, cu_seqlens_k {right['cu_seqlens_k']}, "
        f"positions {right['positions'][:_MAX_TOKENS]}."
    )
    if given is None:
        return text
    wrong = [name for name in right if right[name] != given[name]]
    return f"{text} Yours differs in {', '.join(wrong) or 'other fields'}."
