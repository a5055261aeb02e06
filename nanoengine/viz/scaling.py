"""How much faster several GPUs are: decode rates against the ideal of no time between them."""

from collections.abc import Mapping, Sequence
from typing import Any

from nanoengine.viz.style import BLUE, FONT, INK, MUTED, Picture, canvas

_LINES = ("-", "--", "-.", ":")
_MARKS = ("o", "s", "^", "D")


def scaling_curves(results: Sequence[Mapping[str, Any]]) -> Picture:
    """Decode throughput by number of ranks, as a multiple of the fewest ranks' that ran.

    results: what `python -m nanoengine.bench.scaling --json` wrote, one shape each; runs that
    failed, with an "error", are left out. The thin line is the ideal: twice the ranks, twice the
    rate.
    """
    if not 1 <= len(results) <= len(_LINES):
        raise ValueError(f"{len(results)} results: draw 1 to {len(_LINES)} shapes at a time")
    figure, (ax,) = canvas(3.2)
    ax.set_axis_on()
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT - 1)
    curves = [_curve(result) for result in results]
    ranks = sorted({n for points in curves for n, _ in points})
    fewest = [points[0][0] for points in curves]
    ax.plot(ranks, [n / min(fewest) for n in ranks], color=BLUE, linewidth=0.8)
    top = max(ranks) / min(fewest)
    ax.annotate("ideal", (ranks[-1], top), (-10, 2), textcoords="offset points", ha="right",
                color=BLUE, fontsize=FONT)  # fmt: skip
    for result, points, line, mark in zip(results, curves, _LINES, _MARKS, strict=False):
        x, y = zip(*points, strict=True)
        ax.plot(x, y, mark + line, color=INK, markersize=5)
        ax.annotate(f"{result['shape']}: {y[-1]:.2f}x on {x[-1]}", points[-1], (8, 0),
                    textcoords="offset points", va="center", fontsize=FONT)  # fmt: skip
    values = [y for points in curves for _, y in points]
    ax.set_xscale("log", base=2)  # doublings on both axes: the ideal is a straight line
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_xticks(ranks, [str(n) for n in ranks])
    ax.set_xlim(min(ranks) / 1.1, max(ranks) * 2)
    ax.set_ylim(min(values) / 1.2, 1.3 * max(top, *values))
    ax.set_xlabel("ranks", fontsize=FONT)
    ax.set_ylabel(f"decode rate, {min(fewest)} rank = 1", fontsize=FONT)
    ax.set_title(_where(results[0]), loc="left", fontsize=FONT, color=MUTED)
    return Picture(figure, _alt(results, curves))


def _curve(result: Mapping[str, Any]) -> list[tuple[int, float]]:
    """(ranks, multiple of the rate of the fewest) of every run that ran."""
    points = [(run["ranks"], run["scaling"]) for run in result["runs"] if "error" not in run]
    if not points:
        raise ValueError(f"no run of {result['shape']} succeeded: {result['runs'][0]['error']}")
    return sorted(points)


def _where(result: Mapping[str, Any]) -> str:
    return f"batch {result['batch']}, {result['dtype']}, {result['device']}"


def _alt(
    results: Sequence[Mapping[str, Any]], curves: Sequence[Sequence[tuple[int, float]]]
) -> str:
    told = "; ".join(
        f"{result['shape']}: " + ", ".join(f"{y:.2f} on {n}" for n, y in points)
        for result, points in zip(results, curves, strict=True)
    )
    return f"Decode rate by number of ranks, the fewest count 1. {told}. {_where(results[0])}."
