"""What went wrong in an answer, in one honest line."""

import builtins
import difflib
from typing import Any

from nanoengine.course.limits import CPU_SECONDS, FILE_BYTES, MEMORY_BYTES, WALL_SECONDS
from nanoengine.course.registry import Exercise
from nanoengine.course.source import line_of
from nanoengine.course.stubs import stub

_NO_MEMORY = ("can't allocate memory", "not enough memory", "unable to allocate", "out of memory")


def in_words(exercise: Exercise, source: str, error: dict[str, Any], situation: str) -> str:
    """An exception of the answer: situation, type, message, and the line in the student's text."""
    kinds, message = error["kinds"], error["message"]
    at = _at(error["line"], error["text"])
    name = exercise.function
    if error["not_attempted"]:
        return f"the line `raise NotAttempted(...)` is still reached: delete it{at}."
    if "LibraryCalled" in kinds:
        return (
            f"this is the library's own {name}, or it calls it{at}: write the body yourself; "
            f'show("{exercise.id}") prints the library\'s.'
        )
    if "SystemExit" in kinds or "KeyboardInterrupt" in kinds:
        return f"your code ends the program ({error['type']}){at}: return a value instead."
    if "MemoryError" in kinds or any(words in message.lower() for words in _NO_MEMORY):
        return f"{situation}: your code wanted more than {MEMORY_BYTES >> 20} MiB of memory{at}."
    if "OSError" in kinds and "File too large" in message:
        return f"{situation}: your code printed more than {FILE_BYTES >> 20} MiB{at}."
    if "SyntaxError" in kinds:
        return _syntax(source, error, at)
    if "NameError" in kinds and "UnboundLocalError" not in kinds:
        return _unknown_name(exercise, message, at)
    if situation == "loading it" and error["type"] == "LookupError":
        return _missing(name, message)
    if "RecursionError" in kinds:
        return f"{situation}: your function calls itself without end{at}."
    if "WorkerError" in kinds:
        return f"{situation}: {message}{at}."
    if "GraphError" in kinds:
        return f"{situation}: {message}{at}."
    if not error["line"]:
        return (
            f"{situation}: the engine could not use what you returned ({error['type']}: {message})."
        )
    return f"{situation}: {error['type']}: {message}{at}."


def _at(line: int, text: str) -> str:
    return f", line {line}: `{text}`" if line and text else f", line {line}" if line else ""


def _missing(name: str, found: str) -> str:
    close = difflib.get_close_matches(name, found.split(", "), n=1)
    hint = f"; is it {close[0]}?" if close else "; keep the name and the `def` line"
    return f"there is no function {name} in your code{hint}"


def _syntax(source: str, error: dict[str, Any], at: str) -> str:
    if error["text"].startswith(("%", "!")):
        return f"notebook commands do not work here{at}: an exercise is run as plain Python."
    return f"Python cannot read it: {error['message'].partition(' (')[0]}{at}."


def _unknown_name(exercise: Exercise, message: str, at: str) -> str:
    name = message.split("'")[1] if "'" in message else message
    if f"import {name}" in stub(exercise) or f", {name}" in stub(exercise).partition("def ")[0]:
        return f"the name {name} is not known{at}: the stub's import line for it is missing."
    if hasattr(builtins, name):
        return f"the name {name} is not known{at}."
    return (
        f"the name {name} is not known{at}. Your answer is run alone: what it needs from another "
        "cell must be defined or imported in this one."
    )


def ended_early(out_of_time: bool, signal_name: str, trace: str, source: str) -> str:
    """The graded process ended without a result, or was ended.

    out_of_time: by a clock. signal_name: what ended it. trace: faulthandler's text.
    """
    line = _traced_line(trace)
    at = _at(line, line_of(source, line))
    if out_of_time or signal_name in ("SIGXCPU", "SIGKILL"):
        return (
            f"your code was not done when its time was up ({CPU_SECONDS} seconds of computing, "
            f"{WALL_SECONDS} in all){at}: does a loop never end, or does it wait for something?"
        )
    if signal_name:
        return f"your code crashed the Python process ({signal_name}){at}."
    return "your code ended the Python process before the checks were through (os._exit?)."


DESCRIPTOR_CLOSED = "your code closed file descriptors that are not its own: leave them open."


def _traced_line(trace: str) -> int:
    """The line number in the student's text that faulthandler saw last."""
    for row in trace.splitlines():
        if '"your answer"' in row and ", line " in row:
            digits = row.partition(", line ")[2].split()[0]
            return int(digits) if digits.isdigit() else 0
    return 0
