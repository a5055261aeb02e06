"""Runs a student's answer, in a process of its own, and reports what it did as plain data.

Nothing is judged here: the process that judges shares no memory with the answer.
"""

import contextlib
import faulthandler
import importlib
import inspect
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

from nanoengine.course import limits, ranks
from nanoengine.course.errors import LibraryCalled, NotAttempted
from nanoengine.course.registry import Exercise, exercises
from nanoengine.course.source import FILENAME, line_of, run_source
from nanoengine.course.swapping import carried, replaced
from nanoengine.course.values import MutatedArgument

if TYPE_CHECKING:
    from nanoengine.course.scenarios import Scenario

RESULT_LOST = 73  # exit status: the result's descriptor was closed
READY = b"ready\n"  # written before the answer is touched: what fails earlier is our own fault
_WATCHED = ("builtins", "os", "sys", "json", "threading", "torch", "torch.nn.functional")
_KINDS = (FunctionType, type, staticmethod, classmethod, property, type(len))


class Task(NamedTuple):
    """What the graded process is told. forked: it is a copy of the server, and may fork itself."""

    exercise: str
    source: str
    folder: str
    forked: bool = False


def main(task: Task, result: int, key: bytes) -> None:
    """Observe the answer, write `key` and the observation to the descriptor, end the process.

    Before, `key` and READY are written.

    Descriptors 1 and 2 must lead to files of the judge already. Never returns.
    """
    write, leave, dump = os.write, os._exit, json.dumps  # the answer may replace the modules' own
    sys.stdout, sys.stderr = _text_to(1), _text_to(2)
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    _import_everything(exercises[task.exercise])  # neither clock nor memory limit is for that
    ranks.start_by_fork(task.forked)
    limits.limit_this_process()
    for name in ("SIGXCPU", "SIGTERM"):
        if hasattr(signal, name) and hasattr(faulthandler, "register"):
            faulthandler.register(getattr(signal, name), file=2, all_threads=False, chain=True)
    write(result, key + READY)
    seconds = limits.WALL_SECONDS + (0 if task.forked else limits.START_SECONDS)
    faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    observed = dump(observe(task)).encode()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    try:
        data = key + observed
        while data:
            data = data[write(result, data) :]
    except OSError:
        leave(RESULT_LOST)
    leave(0)


def _text_to(number: int) -> TextIO:
    """A text stream to a descriptor that stays open."""
    stream = open(number, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115
    return cast(TextIO, stream)


def _import_everything(exercise: Exercise) -> None:
    """What grading imports; later imports would look like changes made by the answer."""
    import torch

    importlib.import_module("nanoengine.course.scenarios")
    importlib.import_module(exercise.target.partition(":")[0])
    torch.set_num_threads(1)


def observe(task: Task) -> dict[str, Any]:
    """Load the answer, run the contract's cases, then the scenarios; stop at a broken load."""
    from nanoengine.course.scenarios import SCENARIOS

    exercise = exercises[task.exercise]
    threads = threading.active_count()
    seen: dict[str, Any] = {"cases": [], "scenarios": {}}
    cases = exercise.cases()
    before = _snapshot()
    with _guarded(exercise) as guard:
        try:
            function = _load(exercise, task.source, guard)
        except BaseException as error:  # SystemExit and KeyboardInterrupt, too
            return {**seen, "load": _describe(error, task.source)}
        for case in cases:
            observed = partial(_observed, exercise, function, case.args)
            seen["cases"].append(_attempt(observed, task))
        for name in exercise.scenarios:
            behaviour = partial(_behaviour, exercise, function, SCENARIOS[name], task)
            reason = SCENARIOS[name].missing()
            seen["scenarios"][name] = (
                _attempt(behaviour, task) if reason is None else {"not run": reason}
            )
    seen["tampered"] = _changed(before)
    seen["threads"] = threading.active_count() - threads
    return seen


class Calls:
    """The answer on its way into the engine: counts calls, refuses to be called by itself.

    An answer that calls the library's function by its module attribute would reach itself here.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.count = 0
        self._inside = False

    def guarded(
        self, adapt: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> Callable[..., Any]:
        """A plain function (so that it also works as a method) around the adapted answer."""
        inner = adapt(self.function)

        def answer(*args: Any, **options: Any) -> Any:
            if self._inside:
                raise LibraryCalled
            self._inside = True
            self.count += 1
            try:
                return inner(*args, **options)
            finally:
                self._inside = False

        return answer


def _observed(exercise: Exercise, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return exercise.observe(function, exercise.arguments(args))


def _behaviour(
    exercise: Exercise, function: Callable[..., Any], scenario: "Scenario", task: Task
) -> dict[str, Any]:
    """Run one scenario with the answer in the engine, on all of its ranks."""
    from nanoengine.course.scenarios import run

    calls, folder = Calls(function), Path(task.folder)
    source = {"source": task.source, "name": exercise.function}
    with ranks.counted_calls(folder) as elsewhere:
        with (
            replaced(exercise, calls.guarded(exercise.adapt)),
            carried(exercise, source, str(elsewhere)),
        ):
            observed = run(scenario, folder).to_plain()
        return {**observed, "calls": calls.count + ranks.count_of(elsewhere)}


def _attempt(action: Callable[[], Any], task: Task) -> dict[str, Any]:
    """{"value": ...}, {"mutated": ...} or {"error": ...}."""
    try:
        return {"value": action()}
    except MutatedArgument as error:
        return {"mutated": str(error)}
    except BaseException as error:
        return {"error": _describe(error, task.source)}


def _load(exercise: Exercise, source: str, guard: FunctionType) -> Callable[..., Any]:
    """Run the source and pick its function. Raises what the source raises, or LookupError."""
    names = run_source(source, FILENAME)
    function = names.get(exercise.function)
    if function is guard:
        raise LibraryCalled
    if not callable(function):
        own = [k for k, v in names.items() if inspect.isfunction(v) and v.__module__ == "answer"]
        raise LookupError(", ".join(own))
    return function  # type: ignore[no-any-return]


@contextlib.contextmanager
def _guarded(exercise: Exercise) -> Iterator[FunctionType]:
    """While student code runs, every way to the library's function leads to LibraryCalled."""
    original = inspect.unwrap(
        getattr(exercise.place().function, "__func__", exercise.place().function)
    )

    def guard(*args: Any, **options: Any) -> Any:
        from nanoengine.course.errors import LibraryCalled

        raise LibraryCalled

    code = original.__code__
    if not code.co_freevars:
        original.__code__ = guard.__code__
    try:
        with replaced(exercise, guard):
            yield guard  # type: ignore[misc]
    finally:
        original.__code__ = code


def _describe(error: BaseException, source: str) -> dict[str, Any]:
    """An exception as plain data, with the deepest line of the student's text it went through."""
    told = ranks.failure_of(error)
    if told is not None:
        return {**told, "text": line_of(source, told["line"])}
    line = 0
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == FILENAME:
            line = frame.lineno or 0
    if isinstance(error, SyntaxError) and error.filename == FILENAME:
        line = error.lineno or 0
    try:
        message = str(error)[:200]
    except Exception:  # an exception class of the student's own may be broken
        message = ""
    return {
        "type": type(error).__name__,
        "kinds": [kind.__name__ for kind in type(error).__mro__],
        "message": message,
        "line": line,
        "text": line_of(source, line),
        "not_attempted": isinstance(error, NotAttempted),
    }


def _snapshot() -> dict[tuple[str, str], Any]:
    """Functions and classes by (place, name): what an answer has no business to replace."""
    found: dict[tuple[str, str], Any] = {}
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType):  # a stand-in, or None
            continue  # type: ignore[unreachable]
        ours = name == "nanoengine" or name.startswith("nanoengine.")
        if not ours and name not in _WATCHED:
            continue
        for attribute, value in list(vars(module).items()):
            if not isinstance(value, _KINDS):
                continue
            found[name, attribute] = value
            if ours and isinstance(value, type):
                for member, method in list(vars(value).items()):
                    if isinstance(method, _KINDS):
                        found[f"{name}.{attribute}", member] = method
    return found


def _changed(before: dict[tuple[str, str], Any]) -> str | None:
    """The first function or class that is another object now, or is gone."""
    now = _snapshot()
    for place, value in before.items():
        if now.get(place) is not value:
            return ".".join(place)
    return None
