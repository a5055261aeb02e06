"""A packed prefill batch: chunks end to end, and the borders that tell them apart."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nanoengine.viz.marks import line
from nanoengine.viz.style import (
    CACHED,
    FONT,
    INK,
    MUTED,
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

_MAX_TOKENS = 40
_ROWS = (("input_ids", 0.0), ("positions", 1.0), ("slot_mapping", 2.0))
_KEYS_Y = 5.6
_OWN = tuple(role for role in SEQUENCES if role.hatch != CACHED.hatch)
_SMALL_ABOVE = 16  # tokens in a row, from which on their text is small


def packed_batch(inputs: Any, *, got: Any = None) -> Picture:
    """The batch's tokens in a row with ids, positions and slots, and both cu_seqlens.

    Below, the keys that attention reads: with history they are more than the queries.

    inputs: PrefillInputs, or the same fields in a dict. got: a student's; drawn below, with the
    entries that differ crossed.
    """
    right = _fields(inputs)
    given = _fields(got) if got is not None else None
    figure, axes = canvas(3.2 if given is None else 5.2, 1 if given is None else 2)
    _panel(axes[0], right, None, "queries: the tokens that this step computes, packed end to end")
    _keys(axes[0], right)
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
    draw_label(ax, 0, -1.35, title, align="left", colour=MUTED if right is None else RED)
    for name, y in _ROWS:
        draw_label(ax, -0.3, y + 0.5, name, align="right")
        for x, value in enumerate(mine[name][:count]):
            wanted = None if right is None else right[name]
            differs = wanted is not None and (x >= len(wanted) or wanted[x] != value)
            role = WRONG if differs else _OWN[owners[x] % len(_OWN)]
            draw_cell(ax, x, y, str(value), role, small=count > _SMALL_ABOVE)
    inside = [b for b in borders if isinstance(b, int) and b <= count]
    for sequence, border in enumerate(inside):
        line(ax, (border, -0.45), (border, 3.2), width=1.8)
        if border < count:
            text = f"sequence {sequence}" if inside[sequence + 1 :] else ""
            draw_label(ax, border + 0.15, -0.42, text, align="left", size=FONT - 1)
    ax.set_xlim(-3.6, max(count, 14) + 0.3)
    if right is None:
        _border_numbers(ax, inside, 3.6, "cu_seqlens_q")
        ax.set_ylim(4.2, -1.8)
        return
    for row, name in enumerate(("cu_seqlens_q", "cu_seqlens_k")):
        same = right[name] == mine[name]
        text = f"{name} = {mine[name]}{'' if same else '  (differs)'}"
        draw_label(ax, 0, 3.7 + 0.9 * row, text, align="left", colour=INK if same else RED)
    ax.set_ylim(5.2, -1.8)


def _border_numbers(ax: "Axes", borders: Sequence[int], y: float, name: str) -> None:
    draw_label(ax, -0.3, y, name, align="right", bold=True)
    for border in borders:
        draw_label(ax, border, y, str(border), bold=True)


def _keys(ax: "Axes", right: dict[str, list[Any]]) -> None:
    """Each sequence's keys, old and new, end to end; the borders are cu_seqlens_k."""
    q, k = right["cu_seqlens_q"], right["cu_seqlens_k"]
    if not k or k[-1] > _MAX_TOKENS:
        return
    small = k[-1] > _SMALL_ABOVE
    text = "keys: all that attention reads; dotted ones come from the cache"
    if k[-1] == q[-1]:
        text = "keys: the same tokens; nothing comes from the cache"
    draw_label(ax, 0, _KEYS_Y - 0.5, text, align="left", colour=MUTED)
    draw_label(ax, -0.3, _KEYS_Y + 0.5, "position of key", align="right")
    for sequence in range(len(k) - 1):
        keys, new = k[sequence + 1] - k[sequence], q[sequence + 1] - q[sequence]
        for position in range(keys):
            own = _OWN[sequence % len(_OWN)]
            role = own if position >= keys - new else CACHED
            draw_cell(ax, k[sequence] + position, _KEYS_Y, str(position), role, small=small)
    for border in k:
        line(ax, (border, _KEYS_Y - 0.15), (border, _KEYS_Y + 1.2), width=1.8)
    _border_numbers(ax, k, _KEYS_Y + 1.6, "cu_seqlens_k")
    ax.set_xlim(-3.6, max(k[-1], 14) + 0.3)
    ax.set_ylim(_KEYS_Y + 2.2, -1.8)


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
