"""Memory over time: what a step allocates on top of what stays."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nanoengine.viz.marks import line
from nanoengine.viz.memory import size
from nanoengine.viz.style import BLUE, FONT, INK, MUTED, Picture, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MIB = 1 << 20
_LINE_SHARE = 0.08  # of the highest peak: the distance of two names


def allocation_curve(curves: Mapping[str, Sequence[int]], baseline: int = 0) -> Picture:
    """Allocated bytes during one or more runs, on top of what was there before.

    curves: name -> bytes beyond `baseline` after each allocation or release.
    """
    figure, axes = canvas(3.0)
    ax = axes[0]
    ax.set_axis_on()
    ax.invert_yaxis()
    found, peaks = [], []
    for (name, values), style in zip(curves.items(), ("-", "--", ":", "-."), strict=False):
        count = max(len(values) - 1, 1)
        xs = [index / count for index in range(len(values))]
        ax.plot(xs, [(baseline + v) / _MIB for v in values], style, color=INK)
        peak = max(values)
        last = max(x for x, v in zip(xs, values, strict=True) if v == peak)
        peaks.append(_Peak((baseline + peak) / _MIB, last, name))
        found.append(f"{name}: {size(peak)} above what stays")
    ax.axhline(baseline / _MIB, color=BLUE, linewidth=1)
    text = f"current: {size(baseline)} stay"
    ax.annotate(text, (0.0, baseline / _MIB), (4, -4), textcoords="offset points", va="top",
                color=BLUE, fontsize=FONT)  # fmt: skip
    _name_peaks(ax, sorted(peaks))
    ax.set_ylim(bottom=0)
    ax.set_xticks([])
    ax.set_xlabel("one step, from its first to its last operation", fontsize=FONT)
    ax.set_ylabel("allocated (MiB)", fontsize=FONT)
    ax.tick_params(labelsize=FONT - 1)
    ax.spines[["top", "right"]].set_visible(False)
    alt = f"Memory during a step over {size(baseline)} that stay: {'; '.join(found)}."
    return Picture(figure, alt)


class _Peak(NamedTuple):
    y: float
    x: float
    name: str


def _name_peaks(ax: "Axes", peaks: Sequence[_Peak]) -> None:
    """Each curve's name at the right, as high as its peak, or above the name of a lower one."""
    ax.set_xlim(0, 1)
    lowest = 0.0
    for peak in peaks:
        line(ax, (peak.x, peak.y), (1, peak.y), colour=MUTED, width=0.8)
        y = max(peak.y, lowest)
        ax.annotate(peak.name, (1, peak.y), (1.02, y), va="center", fontsize=FONT,
                    arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.8})  # fmt: skip
        lowest = y + _LINE_SHARE * peaks[-1].y
