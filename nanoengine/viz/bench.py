"""Benchmarks: bars with their spread, a job's runs over time, step times and the floor below."""

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nanoengine.viz.style import (
    BLUE,
    FILLING,
    FONT,
    INK,
    MUTED,
    NEW,
    ORANGE,
    SEQUENCES,
    Picture,
    Role,
    canvas,
)
from nanoengine.viz.style import label as draw_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OURS = "nanoengine"
_PREFILL, _DECODE = NEW, SEQUENCES[0]
_MAX_LABELLED = 12  # runs that have room for a text
_LABELLED_PART = 0.035  # of the time: a shorter run has no room for a label
_BAR_INCHES = 0.42
_GIGA = 1e9
_WIDE = 16  # batches from 1 to 16 and more are drawn by doublings
_TOLD = 6  # points that an alt text lists


def _plain_axes(ax: "Axes") -> None:
    """Axes with a scale, y upwards."""
    ax.set_axis_on()
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT - 1)


# -- rates -------------------------------------------------------------------------------------


def benchmark_bars(results: Sequence[Mapping[str, Any]], limit: float | None = None) -> Picture:
    """Output tokens a second: a bar to each result's median, a mark for every repeat.

    results: dicts with at least `engine` and `output_tok_s`, {"runs": [...], "median": x}, as
    `nanoengine bench --json` writes them. limit: the rate of the machine's floor, a line.
    """
    rows = sorted(results, key=lambda r: float(r["output_tok_s"]["median"]), reverse=True)
    figure, axes = canvas(0.8 + _BAR_INCHES * len(rows))
    ax = axes[0]
    _plain_axes(ax)
    ax.invert_yaxis()
    top = max([limit or 0.0, *(max(r["output_tok_s"]["runs"]) for r in rows)])
    for y, result in enumerate(rows):
        runs, median = result["output_tok_s"]["runs"], result["output_tok_s"]["median"]
        ours = result["engine"] == _OURS
        role = SEQUENCES[2] if ours else SEQUENCES[0]
        ax.barh(y, median, 0.62, color=role.face, edgecolor=role.edge, hatch=role.hatch)
        ax.plot([min(runs), max(runs)], [y, y], color=INK, linewidth=1)
        ax.plot(runs, [y] * len(runs), "o", color=INK, markersize=4, markerfacecolor="white")
        end = max(median, *runs) + 0.015 * top
        draw_label(ax, end, y, f"{median:,.0f}", align="left", bold=ours)
    ax.set_yticks(range(len(rows)), [r["engine"] for r in rows], fontsize=FONT)
    ax.set_xlim(0, top * 1.12)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    text = "output tokens a second: bar to the median, a circle for each repeat"
    ax.set_xlabel("\n".join(filter(None, (text, _where(rows)))), fontsize=FONT)
    if limit is not None:
        ax.axvline(limit, color=BLUE, linestyle="--", linewidth=1.5)
        text = f"the machine's floor allows {limit:,.0f} "
        draw_label(ax, limit, -0.75, text, align="right", colour=BLUE)
        ax.set_ylim(len(rows) - 0.4, -1.1)
    return Picture(figure, _bars_alt(rows, limit))


def _where(rows: Sequence[Mapping[str, Any]]) -> str:
    """The model and device of all results, as far as they say so and agree."""
    places = {(row.get("shape"), row.get("device")) for row in rows}
    shape, device = places.pop() if len(places) == 1 else (None, None)
    return f"{shape} on one {device}" if shape and device else ""


def _bars_alt(rows: Sequence[Mapping[str, Any]], limit: float | None) -> str:
    parts = []
    for result in rows:
        runs, median = result["output_tok_s"]["runs"], result["output_tok_s"]["median"]
        text = f"{result['engine']} {median:,.0f}"
        parts.append(f"{text} ({min(runs):,.0f} to {max(runs):,.0f})" if len(runs) > 1 else text)
    end = f"; the machine's floor allows {limit:,.0f}" if limit is not None else ""
    where = f", {_where(rows)}" if _where(rows) else ""
    return f"Median output tokens a second (range of repeats){where}: {', '.join(parts)}{end}."


# -- one job -----------------------------------------------------------------------------------


def run_timeline(events: Sequence[Any]) -> Picture:
    """A job's runs over time, prefill and decode in two lanes; a second counts for one run only.

    events: RunEvents in order. A hatched strip below: launched, and waiting for the run before.
    """
    figure, axes = canvas(1.9)
    ax = axes[0]
    start, end = events[0].start, max(event.end for event in events)
    _plain_axes(ax)
    ax.spines["left"].set_visible(False)
    before, waited = start, False
    for event in events:
        lane, role = (0, _PREFILL) if event.is_prefill else (1, _DECODE)
        own = max(event.start, min(before, event.end))
        waited = waited or own > event.start
        _span(ax, lane + 0.34, event.start - start, own - start, FILLING, height=0.18)
        _span(ax, lane, own - start, event.end - start, role)
        wide = event.end - own >= _LABELLED_PART * (end - start)
        if len(events) <= _MAX_LABELLED and wide:
            middle = (own + event.end) / 2 - start
            draw_label(ax, middle, lane, f"+{len(event.request_ids)}", size=FONT - 1)
        before = max(before, event.end)
    ax.set_ylim(1.6, -0.4)
    ax.set_xlim(0, 1.005 * (end - start) or 1.0)  # room for the last frame
    ax.set_yticks([0, 1], ["prefill", "decode"], fontsize=FONT)
    ax.tick_params(axis="y", length=0)
    text = "seconds since the first run began; +n: new tokens"
    more = "; hatched: launched, still waiting" if waited else ""
    ax.set_xlabel(text + more, fontsize=FONT)
    return Picture(figure, _timeline_alt(events, end - start))


def _span(
    ax: "Axes", y: float, left: float, right: float, role: Role, height: float = 0.48
) -> None:
    if right > left:
        ax.barh(y, right - left, height, left=left, color=role.face, edgecolor=INK, linewidth=0.6,
                hatch=role.hatch)  # fmt: skip


def _timeline_alt(events: Sequence[Any], seconds: float) -> str:
    prefills = [event for event in events if event.is_prefill]
    tokens = sum(len(event.request_ids) for event in events)
    first = sum(len(event.request_ids) for event in prefills)
    return (
        f"{len(prefills)} prefill and {len(events) - len(prefills)} decode runs over "
        f"{seconds:.3g} s gave {tokens} new tokens, {first} of them in prefill runs."
    )


# -- the floor ---------------------------------------------------------------------------------


def step_times(
    batches: Sequence[int],
    measured_ms: Sequence[Sequence[float]],
    floor_ms: Sequence[float],
    name: str = "measured",
) -> Picture:
    """Milliseconds of a decode step against its batch size, with the floor of the machine.

    measured_ms: for each batch its measurements; the line goes through the medians, bars show
    the range. floor_ms: what the machine needs at least. Above each point: floor / median.
    """
    medians = [statistics.median(values) for values in measured_ms]
    figure, axes = canvas(3.2)
    ax = axes[0]
    _plain_axes(ax)
    below = [m - min(values) for m, values in zip(medians, measured_ms, strict=True)]
    above = [max(values) - m for m, values in zip(medians, measured_ms, strict=True)]
    ax.errorbar(batches, medians, yerr=[below, above], fmt="o-", color=INK, capsize=3)
    ax.plot(batches, floor_ms, "s--", color=BLUE, markersize=4)
    ax.fill_between(batches, 0, floor_ms, facecolor="#dbeaf5", edgecolor=BLUE, hatch="////",
                    linewidth=0, alpha=0.5)  # fmt: skip
    reached = [floor / m for floor, m in zip(floor_ms, medians, strict=True)]
    for batch, median, up, part in zip(batches, medians, above, reached, strict=True):
        ax.annotate(f"{part:.0%}", (batch, median + up), (-7, 5), textcoords="offset points",
                    ha="center", fontsize=FONT - 1)  # fmt: skip
    top = max(m + up for m, up in zip(medians, above, strict=True))
    if max(batches) >= _WIDE * min(batches):  # doublings: small batches need room, too
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:.0f}")
    _name_floor(ax, batches[-1])
    ax.set_title(f"measured: {name}", loc="left", fontsize=FONT)
    ax.set_xlabel("sequences in a decode step; above: part of the floor's rate reached")
    ax.set_ylabel("milliseconds a step")
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_fontsize(FONT)
    ax.set_ylim(0, 1.15 * top)
    return Picture(figure, _steps_alt(batches, medians, floor_ms, name))


def _name_floor(ax: "Axes", x: float) -> None:
    """Its name inside the area below the floor, at the right end of the axis."""
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    ax.annotate("the machine's floor", (x, 0), (-8, 11), textcoords="offset points",
                ha="right", va="center", fontsize=FONT, color=BLUE, bbox=paper)  # fmt: skip


def _steps_alt(
    batches: Sequence[int], medians: Sequence[float], floor_ms: Sequence[float], name: str
) -> str:
    rows = list(zip(batches, medians, floor_ms, strict=True))
    if len(rows) > _TOLD:  # read aloud, a long list is no help
        rows = [rows[0], rows[len(rows) // 2], rows[-1]]
    points = ", ".join(
        f"{batch}: {median:.3g} ms, floor {floor:.3g} ms ({floor / median:.0%})"
        for batch, median, floor in rows
    )
    return f"Decode step time by batch size, {name}. {points}."


def machine_roof(
    bytes_per_second: float, flops_per_second: float, points: Mapping[str, tuple[float, float]]
) -> Picture:
    """What the machine allows at each ratio of arithmetic to traffic, and what was reached.

    points: name -> (operations a byte moved, operations a second reached). The roof is the lower
    of bandwidth x ratio and the peak of arithmetic.
    """
    figure, axes = canvas(3.4)
    ax = axes[0]
    _plain_axes(ax)
    knee = flops_per_second / bytes_per_second
    ratios = [ratio for ratio, _ in points.values()]
    left, right = min([*ratios, knee]) / 3, max([*ratios, knee]) * 3
    top = flops_per_second / _GIGA
    ax.plot([left, knee, right], [left * bytes_per_second / _GIGA, top, top], color=BLUE, lw=2)
    ax.set_xscale("log")
    ax.set_yscale("log")
    said = []
    for name, (ratio, rate) in points.items():
        roof = min(ratio * bytes_per_second, flops_per_second)
        ax.plot([ratio, ratio], [rate / _GIGA, roof / _GIGA], ":", color=MUTED, linewidth=1)
        ax.plot([ratio], [rate / _GIGA], "o", color=ORANGE, markeredgecolor=INK, markersize=7)
        side, align = (7, "left") if ratio * ratio < left * right else (-7, "right")
        ax.annotate(f"{name}: {rate / roof:.0%}", (ratio, rate / _GIGA), (side, -4),
                    textcoords="offset points", ha=align, fontsize=FONT - 1)  # fmt: skip
        said.append(f"{name} at {ratio:.3g} operations a byte reaches {rate / roof:.0%} of it")
    for axis in (ax.xaxis, ax.yaxis):  # setting a scale sets its own format
        axis.set_major_formatter("{x:,g}")
    middle = (left * knee) ** 0.5
    speed = bytes_per_second / _GIGA
    _note(ax, f"memory: {speed:,.3g} GB/s", middle, middle * speed)
    _note(ax, f"arithmetic: {top:,.4g} GFLOP/s", right, top)
    ax.set_xlabel("operations for each byte moved", fontsize=FONT)
    ax.set_ylabel("GFLOP a second", fontsize=FONT)
    return Picture(figure, f"Roofline with its knee at {knee:.3g}: {'; '.join(said)}.")


def _note(ax: "Axes", text: str, x: float, y: float) -> None:
    """A text to the upper left of a point."""
    ax.annotate(text, (x, y), (-6, 6), textcoords="offset points", ha="right", fontsize=FONT - 1,
                color=BLUE)  # fmt: skip
