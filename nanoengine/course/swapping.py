"""swap: put a student's function where the engine looks the library's up."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from nanoengine.course.errors import CourseError
from nanoengine.course.registry import Exercise, exercises

Function = Callable[..., Any]


@contextmanager
def swap(what: str | Mapping[str, Function], function: Function | None = None) -> Iterator[None]:
    """Inside the `with` block the engine runs `function` instead of the library's.

    One exercise, `swap("01.slot_mapping", fn)`, or several at once, `swap({id: fn, ...})`. The
    library's functions come back at the end, also after an exception.

    Raises CourseError for an unknown id, for something that cannot be called, and for a target
    whose effect a living engine has captured in graphs: the swap would not reach it.
    """
    wanted = {what: function} if isinstance(what, str) else dict(what)
    for key, value in wanted.items():
        if not callable(value):
            raise CourseError(f"swap({key!r}, ...) needs a function, not {type(value).__name__}")
        _refuse_captured(exercises[key])
    with ExitStack() as stack:
        for key, value in wanted.items():
            stack.enter_context(replaced(exercises[key], value))
        yield


@contextmanager
def replaced(exercise: Exercise, function: Function | None) -> Iterator[None]:
    """Replace one exercise's targets and put back what was there."""
    with ExitStack() as stack:
        for owner, name, _ in exercise.places():
            before = vars(owner)[name]
            stack.callback(setattr, owner, name, before)
            keep_static = isinstance(before, staticmethod) and callable(function)
            setattr(owner, name, staticmethod(function) if keep_static else function)  # type: ignore[arg-type]
        yield


def _refuse_captured(exercise: Exercise) -> None:
    if not exercise.captured:
        return
    from nanoengine.engine.model_runner import ModelRunner

    # type(), since isinstance() asks every object for its class, and some warn when asked
    runners = [thing for thing in gc.get_objects() if issubclass(type(thing), ModelRunner)]
    if any(runner.buckets for runner in runners):
        raise CourseError(
            f"swap({exercise.id!r}) would not reach an engine whose graphs are captured already: "
            "close that LLM, swap, then build it; or build it with enforce_eager=True"
        )
