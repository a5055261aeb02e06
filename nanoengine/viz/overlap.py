"""The step loop in time: what the host does, what the device does, and who waits for whom."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from nanoengine.viz.marks import arrow
from nanoengine.viz.style import (
    FILLING,
    FONT,
    INK,
    MUTED,
    NEW,
    SEQUENCES,
    Picture,
    canvas,
    cell,
    label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 24.0  # of the longest loop
_LANES = {"host": 0.0, "device": 2.1}
_HOST, _DEVICE = NEW, SEQUENCES[0]
_NARROW = 1.2  # a box too small for a word


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step of the loop, in milliseconds from the first launch.

    The host schedules, prepares and launches it in [launch_start, launch_end); the device runs it
    in [device_start, device_end); the host has read its tokens at `read`.
    """

    launch_start: float
    launch_end: float
    device_start: float
    device_end: float
    read: float


def overlap_timeline(
    plain: Sequence[TimedStep], overlapped: Sequence[TimedStep], source: str
) -> Picture:
    """The same steps without overlap and with it, on one scale; hatched: the device is idle.

    source: where the times are from; it is printed below.

    >>> picture = overlap_timeline(plain, overlapped, "simulated")  # doctest: +SKIP
    """
    figure, axes = canvas(4.1, 2)
    scale = _WIDTH / max(plain[-1].read, overlapped[-1].read)
    text = f"without overlap: the device waits {_lost(plain):.2f} ms before each step (hatched)"
    _loop(axes[0], plain, scale, text)
    text = "with overlap: the next step is launched before the tokens of this one are read"
    _loop(axes[1], overlapped, scale, text)
    label(axes[1], 0, 5.0, source, align="left", size=FONT - 1, colour=MUTED)
    for ax in axes:
        ax.set_xlim(-2.4, _WIDTH + 0.6)
        ax.set_ylim(5.5, -1.5)
    return Picture(figure, _alt(plain, overlapped, source))


def idle(steps: Sequence[TimedStep]) -> list[tuple[float, float]]:
    """When the device has nothing to run, between the first step and the last."""
    gaps = [(a.device_end, b.device_start) for a, b in pairwise(steps)]
    return [(start, end) for start, end in gaps if end > start]


def _lost(steps: Sequence[TimedStep]) -> float:
    """Milliseconds that the device is idle before a step, on average."""
    return sum(end - start for start, end in idle(steps)) / max(len(steps) - 1, 1)


def _loop(ax: "Axes", steps: Sequence[TimedStep], scale: float, title: str) -> None:
    label(ax, 0, -1.1, title, align="left", colour=INK)
    for name, y in _LANES.items():
        label(ax, -0.3, y + 0.5, name, align="right", bold=True)
    for number, step in enumerate(steps):
        start, width = step.launch_start * scale, (step.launch_end - step.launch_start) * scale
        text = f"prepare {number}" if width > 3 * _NARROW else str(number)
        cell(ax, start, _LANES["host"], text, _HOST, width=width)
        start, width = step.device_start * scale, (step.device_end - step.device_start) * scale
        cell(ax, start, _LANES["device"], f"step {number}", _DEVICE, width=width)
        arrow(ax, (step.launch_end * scale, 1.05), (step.device_start * scale, 2.0))
        read = step.read * scale
        label(ax, read, 3.85, f"read {number}", size=FONT - 1)
        arrow(ax, (read, 3.55), (read, 3.12), dashed=True)
    for start, end in idle(steps):
        cell(ax, start * scale, _LANES["device"], "", FILLING, width=(end - start) * scale)


def _alt(plain: Sequence[TimedStep], overlapped: Sequence[TimedStep], source: str) -> str:
    words = " ".join(source.split())
    return (
        f"{len(plain)} decode steps. Without overlap the device waits {_lost(plain):.2f} ms before "
        f"each step, and all tokens are read after {plain[-1].read:.1f} ms; with overlap it waits "
        f"{_lost(overlapped):.2f} ms, and they are read after {overlapped[-1].read:.1f} ms. {words}"
    )
