"""The capstone: the engine on all of a student's parts at once writes the same text.

Whatever the registry holds takes part. Each part has passed alone; here they have to fit together.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nanoengine.course.capstone_run import PROMPTS
from nanoengine.course.errors import CourseError
from nanoengine.course.grading import grade, library_state
from nanoengine.course.registry import Exercise, exercises
from nanoengine.course.result import Check, Grade, shorten
from nanoengine.course.server import environment
from nanoengine.course.work import Work

_MODULE = "nanoengine.course.capstone_run"
_SECONDS = 180
_MEASURING = "nanoengine.bench."
_SHOWN = 4  # names in a message; the checks have them all


@dataclass(frozen=True, slots=True)
class Capstone:
    """What reports call it, and the section of its lesson that a message points to."""

    id: str = "06.capstone"
    title: str = "the engine on all of your parts at once"
    points: int = 6
    where: str = "section 8, The capstone"

    @property
    def lesson(self) -> str:
        """The lesson it belongs to."""
        return self.id.partition(".")[0]


CAPSTONE = Capstone()


def wanted() -> list[Exercise]:
    """The parts that a whole engine is made of: every exercise but the bonus ones."""
    return [e for e in exercises.values() if e.level != "bonus" and _is_in_the_engine(e)]


def _is_in_the_engine(exercise: Exercise) -> bool:
    """Whether an engine is built with it; lesson 07's functions measure one from outside."""
    return not exercise.target.startswith(_MEASURING)


def known_parts(work: Work) -> dict[str, str]:
    """The saved answers that are known to pass, by exercise id; nothing is graded here."""
    parts: dict[str, str] = {}
    for exercise in exercises.values():
        text = work.load(exercise)
        known = work.known_grade(exercise, text) if text is not None else None
        if text is not None and known is not None and known.usable:
            parts[exercise.id] = text
    return parts


def graded_parts(work: Work) -> dict[str, str]:
    """The saved answers that pass, all of them graded now."""
    texts = {exercise.id: work.load(exercise) for exercise in exercises.values()}
    return {
        name: text for name, text in texts.items() if text is not None and grade(name, text).usable
    }


def _grade_what_changed(work: Work) -> None:
    for exercise in exercises.values():
        text = work.load(exercise)
        if text is not None and work.known_grade(exercise, text) is None:
            result = grade(exercise.id, text)
            if result.state != "todo":
                work.remember(text, result)


def known_grade(work: Work) -> Grade:
    """What the capstone gave for the answers as they are now, without running it; else "todo"."""
    parts = known_parts(work)
    if not parts:
        return _nothing_solved()
    known = work.known_grade(CAPSTONE, _key(parts))
    return known or Grade(CAPSTONE.id, "todo", 0, "not run with these answers: capstone()")


def grade_capstone(work: Work, fresh: bool = False) -> Grade:
    """Run the engine on all parts that pass, and compare with the library's.

    Grades are kept in the work folder and taken from there. fresh: neither is done.
    """
    if not fresh:
        _grade_what_changed(work)
    parts = graded_parts(work) if fresh else known_parts(work)
    if not parts:
        return _nothing_solved()
    known = None if fresh else work.known_grade(CAPSTONE, _key(parts))
    if known is not None:
        return known
    result = judge(parts, *_both(parts))
    if not fresh:
        work.remember(_key(parts), result)
    return result


def _nothing_solved() -> Grade:
    message = "no exercise is solved yet: the engine would run on the library's parts alone."
    return Grade(CAPSTONE.id, "todo", 0, message)


def _key(parts: Mapping[str, str]) -> str:
    return json.dumps(parts, sort_keys=True)


# -- running it --------------------------------------------------------------------------------


def _both(parts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the library's engine gives, and what the engine on these parts gives."""
    with contextlib.closing(_Process({"parts": parts})) as mine:  # both at the same time
        return _library(library_state()), mine.result()


@cache
def _library(state: Any) -> dict[str, Any]:
    """The library's own tokens and texts. Raises CourseError when it fails: not the student."""
    seen = _seen({"parts": {}})
    if "tokens" not in seen.get("one", {}):
        raise CourseError(f"the library's own engine failed: {seen.get('one', seen)}")
    one: dict[str, Any] = seen["one"]
    return one


class _Process:
    """A run of `capstone_run`."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "seen.json"
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self._task = json.dumps(task)

    def result(self) -> Any:
        """What it saw; {"one": {"error": ...}} when it ended without."""
        try:
            _, errors = self._process.communicate(self._task, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return {"one": {"error": f"it was not done after {_SECONDS} seconds"}}
        if not self._path.is_file():
            last = errors.strip().rpartition("\n")[2]
            return {"one": {"error": f"its process ended early ({last[:120]})"}}
        return json.loads(self._path.read_text(encoding="utf-8"))

    def close(self) -> None:
        """End it, if it still runs, and what it wrote."""
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


def _seen(task: Mapping[str, Any]) -> Any:
    with contextlib.closing(_Process(task)) as process:
        return process.result()


# -- the verdict -------------------------------------------------------------------------------


def judge(parts: Mapping[str, str], expected: dict[str, Any], seen: dict[str, Any]) -> Grade:
    """The grade of what the engine on `parts` gave, as `capstone_run.observe` saw it."""
    running = len(parts) - len(seen.get("left_out", {}))
    for name, words in (("one", "on one rank"), ("two", "on two ranks")):
        given = seen.get(name)
        if given is not None and given != expected:
            fault = _fault(parts, expected, two=name == "two")
            message = f"with {running} of your parts, {words}: {_difference(expected, given)}"
            text = shorten(f"{message}{fault} See {CAPSTONE.where}.")
            return Grade(CAPSTONE.id, "fail", 0, text, _checks(parts, seen))
    missing = [exercise.id for exercise in wanted() if exercise.id not in parts]
    count = len(wanted()) - len(missing)
    texts = dict(zip(PROMPTS, expected["texts"], strict=False))
    extra = (_checks(parts, seen), "", {"texts": texts})
    mine = f"the same text with {running} of your parts"
    if not missing:
        message = f"{mine}: the whole engine is yours."
        return Grade(CAPSTONE.id, "pass", CAPSTONE.points, message, *extra)
    message = shorten(f"{mine}. The library's still: {_some(missing)}.")
    points = CAPSTONE.points * count // len(wanted())
    return Grade(CAPSTONE.id, "partial", points, message, *extra)


def whose_parts(result: Grade) -> str:
    """The text that was written, and whose part each exercise was, in words."""
    texts = (result.detail or {}).get("texts", {})
    lines = [f"{prompt!r} -> {text!r}" for prompt, text in texts.items()]
    lines += [f"{check.name}: {check.message}" for check in result.checks if check.ok]
    for words in dict.fromkeys(check.message for check in result.checks if not check.ok):
        names = [check.name for check in result.checks if check.message == words]
        lines.append(f"{words}: {', '.join(names)}")
    return "\n".join(lines)


def _difference(expected: dict[str, Any], given: dict[str, Any]) -> str:
    """The first output that differs, or the exception."""
    if "error" in given:
        return f"{given['error']}."
    for index, (wanted_text, text) in enumerate(
        zip(expected["texts"], given["texts"], strict=True)
    ):
        if text != wanted_text:
            return f"output {index} should be {wanted_text[:40]!r}, it is {text[:40]!r}."
    return "the texts are right, the tokens are not."


def _fault(parts: Mapping[str, str], expected: dict[str, Any], two: bool) -> str:
    """Which of the parts it takes for the difference."""
    found = _seen({"parts": parts, "expected": expected, "two": two})
    if not isinstance(found, list) or not found:
        return ""
    if len(found) == 1:
        return f" It takes only {found[0]}."
    return f" It takes {_some(found)} together: what does one leave that another relies on?"


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _checks(parts: Mapping[str, str], seen: dict[str, Any]) -> tuple[Check, ...]:
    """A line for every exercise: whose part it was."""
    calls, left_out = seen.get("calls", {}), seen.get("left_out", {})
    lines = []
    for exercise in exercises.values():
        name = exercise.id
        if name not in parts:
            note = "the library's" if _is_in_the_engine(exercise) else "no part of an engine"
            lines.append(Check(name, None, note))
        elif name in left_out:
            lines.append(Check(name, None, f"left out ({left_out[name]} is in its place)"))
        elif calls.get(name):
            lines.append(Check(name, True, f"yours (calls: {calls[name]:,})"))
        else:
            lines.append(Check(name, True, "yours, but generating text never calls it"))
    return tuple(lines)
