"""How results look: HTML for a notebook, the same words for a terminal."""

import html
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nanoengine.course.errors import CourseError
from nanoengine.course.registry import exercises
from nanoengine.course.result import Grade

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture

# a border's style besides its colour; the state is written out anyway
_BORDERS = {
    "pass": "4px solid #009e73",
    "partial": "4px double #0072b2",
    "fail": "4px dashed #d55e00",
    "todo": "4px dotted #888888",
}
_MARKS = {True: "ok", False: "NO", None: "not run"}


@dataclass(frozen=True, slots=True)
class Rich:
    """Something to look at, as text and as HTML; Jupyter picks."""

    text: str
    html: str

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text)


def grade_html(grade: Grade) -> str:
    """A grade's state and message, its checks folded away, and what the answer printed."""
    rows = "".join(
        f"<tr><td>{_MARKS[check.ok]}</td><td>{html.escape(check.name)}</td>"
        f"<td>{html.escape(check.message)}</td></tr>"
        for check in grade.checks
    )
    done = sum(check.ok is True for check in grade.checks)
    details = (
        f"<details><summary>{done} of {len(grade.checks)} checks passed</summary>"
        f"<table>{rows}</table></details>"
        if rows
        else ""
    )
    printed = (
        f"<div>Your code printed:</div><pre>{html.escape(grade.output)}</pre>"
        if grade.output
        else ""
    )
    return (
        f'<div style="border-left:{_BORDERS[grade.state]};padding:2px 10px">'
        f"<b>{grade.state.upper()} {html.escape(grade.id)}</b>: {html.escape(grade.message)}"
        f"{details}{printed}</div>"
    )


def picture_of(grade: Grade) -> "Picture | None":
    """A drawing of the failing case; None when there is none, or matplotlib is missing."""
    if grade.state != "fail" or grade.detail is None:
        return None
    draw = exercises[grade.id].draw
    if draw is None:
        return None
    try:
        return draw(tuple(grade.detail["args"]), grade.detail["expected"], grade.detail["got"])
    except ImportError:
        return None
    except Exception as error:  # a wrong result may be too odd to draw; its message was shown
        print(f"(no picture: {type(error).__name__})", file=sys.stderr)
        return None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a progress table."""

    id: str
    state: str
    points: int
    of: int
    note: str


def lesson_row(lesson: str, rows: Sequence[Row]) -> Row:
    """One line for a whole lesson: FAIL if anything fails, TODO until all of it is solved."""
    title = import_module(f"nanoengine.course.lessons.lesson_{lesson}").TITLE
    failing = [row.id for row in rows if row.state == "fail"]
    done = _solved(rows)
    note = f"{title}: {done} of {len(rows)} solved"
    if failing:
        note += f", failing: {', '.join(failing)}"
    state = "fail" if failing else "pass" if done == len(rows) else "todo"
    return Row(lesson, state, sum(row.points for row in rows), sum(row.of for row in rows), note)


def table(rows: Sequence[Row], title: str, everything: Sequence[Row] | None = None) -> Rich:
    """Rows under each other, then a bar and the sums, in text and HTML with the same words.

    everything: what is summed up, where the rows are not it.
    """
    everything = rows if everything is None else everything
    points, total = sum(row.points for row in everything), sum(row.of for row in everything)
    tenths = 10 * points // total if total else 0
    bar = "#" * tenths + "." * (10 - tenths)
    solved = f"{_solved(everything)} of {len(everything)} solved"
    summary = f"{title}: {solved}, {points} of {total} points [{bar}]"
    width = max((len(row.id) for row in rows), default=0)
    lines = [
        f"{row.id:<{width}}  {row.state.upper():<7}  {row.points:>2}/{row.of:<2}  {row.note}"
        for row in rows
    ]
    cells = "".join(
        f"<tr><td style='text-align:left'>{html.escape(row.id)}</td><td>{row.state.upper()}</td>"
        f"<td>{row.points}/{row.of}</td>"
        f"<td style='text-align:left'>{html.escape(row.note)}</td></tr>"
        for row in rows
    )
    head = "<tr><th></th><th>state</th><th>points</th><th></th></tr>"
    markup = f"<table>{head}{cells}</table><div>{html.escape(summary)}</div>"
    return Rich("\n".join([*lines, summary]).rstrip(), markup)


def _solved(rows: Sequence[Row]) -> int:
    return sum(row.state in ("pass", "partial") for row in rows)


def wrapped(text: str) -> Rich:
    """Prose as text and as an HTML paragraph that keeps line breaks."""
    return Rich(text, f"<div style='white-space:pre-wrap'>{html.escape(text)}</div>")


def error_line(error: CourseError) -> Rich:
    """An error of use, as one line instead of a traceback."""
    return wrapped(f"nanoengine: {error}")
