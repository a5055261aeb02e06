"""Sampling: a number looked up among probabilities, a race, and shares of many draws."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nanoengine.viz.style import (
    BLUE,
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

_LINE = 20.0  # width of the line from 0 to 1
_READABLE = 0.045  # a part as wide as this has room for a text
_CHAR = 0.2  # width of a small letter
_WINNER = NEW
_FAR = 12  # times the winner's time: longer bars are cut


# -- the look-up -------------------------------------------------------------------------------


def number_line(
    probabilities: Sequence[float],
    labels: Sequence[str],
    noise: float,
    token: int,
    *,
    got: int | None = None,
) -> Picture:
    """Probabilities end to end from 0 to 1, and the part that `noise` falls into.

    token: the index of that part. got: a student's; crossed where it is another.
    """
    figure, (ax,) = canvas(1.5)
    left = 0.0
    for index, (share, text) in enumerate(zip(probabilities, labels, strict=True)):
        wrong = got == index != token
        role = WRONG if wrong else _WINNER if index == token else _plain(index)
        shown = text if share * _LINE >= _CHAR * (len(text) + 1) else ""
        draw_cell(
            ax, left * _LINE, 0, shown, role, width=share * _LINE, small=share < 2 * _READABLE
        )
        if share >= _READABLE:
            draw_label(ax, (left + share / 2) * _LINE, 1.3, f"{share:.3f}", size=FONT - 2)
        left += share
    at = noise * _LINE
    ax.annotate(
        f"{noise:.3f}", (at, 0), (at, -1.0), ha="center", fontsize=FONT, color=BLUE,
        arrowprops={"arrowstyle": "-|>", "color": BLUE, "lw": 1.6},
    )  # fmt: skip
    for end in (0, 1):
        draw_label(ax, end * _LINE, 1.9, str(end), size=FONT - 1, colour=MUTED)
    if got is not None and got != token:
        text = (
            f"crossed: your token {got}"
            if got < len(labels)
            else f"your token {got} does not exist"
        )
        draw_label(ax, _LINE, -0.9, text, align="right", colour=RED)
    ax.set_xlim(-0.4, _LINE + 0.4)
    ax.set_ylim(2.2, -1.5)
    return Picture(figure, _line_alt(probabilities, labels, noise, token, got))


def _plain(index: int) -> Role:
    """Neighbours differ in hatch; the winner's colour is left out."""
    return (SEQUENCES[0], SEQUENCES[2])[index % 2]


def _line_alt(
    probabilities: Sequence[float], labels: Sequence[str], noise: float, token: int, got: int | None
) -> str:
    before = sum(probabilities[:token])
    text = (
        f"{len(labels)} tokens' probabilities end to end from 0 to 1: {noise:.3f} falls into the "
        f"part of {labels[token]}, from {before:.3f} to {before + probabilities[token]:.3f}."
    )
    return text if got in (None, token) else f"{text} You gave token {got}."


# -- the race ----------------------------------------------------------------------------------


def race(probabilities: Sequence[float], labels: Sequence[str], draws: Sequence[float]) -> Picture:
    """Arrival times draw / probability as bars; the shortest one wins."""
    arrivals = [draw / share for draw, share in zip(draws, probabilities, strict=True)]
    winner = arrivals.index(min(arrivals))
    longest = min(max(arrivals), _FAR * min(arrivals))
    figure, (ax,) = canvas(0.5 + 0.26 * len(labels))
    for y, (text, arrival) in enumerate(zip(labels, arrivals, strict=True)):
        width = min(arrival / longest, 1.0) * _LINE * 0.55
        role = _WINNER if y == winner else _plain(0)
        draw_label(ax, -0.3, y + 0.5, f"{text}  p {probabilities[y]:.3f}", align="right")
        draw_cell(ax, 0, y, "", role, width=width)
        more = " ..." if arrival > longest else ""
        wins = "  arrives first" if y == winner else ""
        words = f"{draws[y]:.2f} / {probabilities[y]:.3f} = {arrival:.1f}{more}{wins}"
        draw_label(ax, width + 0.2, y + 0.5, words, align="left", size=FONT - 1)
    draw_label(ax, 0, -0.6, "draw / probability: the time of arrival", align="left", colour=MUTED)
    ax.set_xlim(-5.2, _LINE)
    ax.set_ylim(len(labels) + 0.1, -1.1)
    alt = (
        f"A race of {len(labels)} tokens: {labels[winner]} arrives first, after "
        f"{arrivals[winner]:.1f}; the next one after {sorted(arrivals)[1]:.1f}."
    )
    return Picture(figure, alt)


# -- many draws --------------------------------------------------------------------------------


def sample_shares(
    probabilities: Sequence[float], labels: Sequence[str], counts: Mapping[str, Sequence[int]]
) -> Picture:
    """Probabilities and the shares of many draws, one panel a method, over the same tokens.

    counts: method -> how often each token was drawn; the order of `labels`.
    """
    figure, axes = canvas(0.4 + 1.25 * len(counts), len(counts))
    for panel, (ax, (method, drawn)) in enumerate(zip(axes, counts.items(), strict=True)):
        _shares_panel(ax, method, probabilities, drawn)
        if panel == len(counts) - 1:
            for x, text in enumerate(labels):
                draw_label(ax, x + 0.5, 0.16, text, size=FONT - 2)
    return Picture(figure, _shares_alt(probabilities, labels, counts))


def _shares(drawn: Sequence[int]) -> list[float]:
    total = sum(drawn)
    return [count / total for count in drawn]


def _shares_panel(
    ax: "Axes", method: str, probabilities: Sequence[float], drawn: Sequence[int]
) -> None:
    """One method; every panel has its own scale, so the tallest bar has its number."""
    from matplotlib.patches import Rectangle

    top = max(*_shares(drawn), *probabilities)
    for x, (wanted, share) in enumerate(zip(probabilities, _shares(drawn), strict=True)):
        role = SEQUENCES[0]
        ax.add_patch(
            Rectangle(
                (x + 0.18, 0), 0.64, -share / top,
                facecolor=role.face, edgecolor=INK, hatch="////", linewidth=0.6,
            )
        )  # fmt: skip
        ax.plot([x + 0.08, x + 0.92], [-wanted / top] * 2, color=INK, linewidth=2.2)
    tallest = max(range(len(drawn)), key=drawn.__getitem__)
    words = f"{100 * drawn[tallest] / sum(drawn):.1f} %"
    draw_label(ax, tallest + 1.0, -drawn[tallest] / sum(drawn) / top, words, align="left")
    ax.plot([0, len(probabilities)], [0, 0], color=MUTED, linewidth=0.8)
    draw_label(ax, len(probabilities), -1.0, method, align="right", bold=True)
    text = f"bar: share of {sum(drawn):,} draws; line: probability"
    draw_label(ax, len(probabilities), -0.8, text, align="right", size=FONT - 2, colour=MUTED)
    ax.set_xlim(-0.1, len(probabilities) + 0.1)
    ax.set_ylim(0.3, -1.15)


def _shares_alt(
    probabilities: Sequence[float], labels: Sequence[str], counts: Mapping[str, Sequence[int]]
) -> str:
    parts = []
    for method, drawn in counts.items():
        apart = [abs(a - b) for a, b in zip(_shares(drawn), probabilities, strict=True)]
        far = apart.index(max(apart))
        parts.append(f"{method} at most {100 * max(apart):.1f} points away (at {labels[far]})")
    return f"Shares of draws against the probabilities of {len(labels)} tokens: {'; '.join(parts)}."
