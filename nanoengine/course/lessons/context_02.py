"""Lesson 02's contract for the scope: what happens on the way in, out, and out by an exception."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from nanoengine.context import Context, _state, get_context
from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, wrong_kind
from nanoengine.errors import EngineError

Use = Callable[[Context], AbstractContextManager[Context]]
Args = tuple[Any, ...]

THE_ONE, ANOTHER, NONE = "the step's context", "another context", "no context"
_NO_MANAGER = "no context manager"
_NOT_REFUSED = "nothing was raised"


def use_cases() -> list[Case]:
    """What the scope must guarantee, simplest first; each case is a little script."""
    return [Case(check, situation, (check,)) for check, situation in _SITUATIONS.items()]


_SITUATIONS = {
    "inside": "inside `with use_context(context)`",
    "after": "after the `with` block",
    "two steps": "in the second of two steps, one after the other",
    "an exception": "after an operator inside the block raised ValueError",
    "Ctrl-C": "after Ctrl-C (KeyboardInterrupt) inside the block",
    "nesting": "when a second use_context is entered inside the first",
    "after nesting": "inside the first block, after the second use_context was refused",
    "not entered": "after use_context(context) was called, but no `with` entered it",
}


def observe_use(function: Use, args: Args) -> list[str]:
    """Run one script; what it saw, in words. The state is empty before and after."""
    _state.current = None

    def use(context: Context) -> AbstractContextManager[Context]:
        manager = function(context)
        if not hasattr(type(manager), "__enter__"):
            raise _NoManager(type(manager).__name__)
        return manager

    try:
        return _SCRIPTS[args[0]](use)
    except _NoManager as error:
        return [_NO_MANAGER, str(error)]
    finally:
        _state.current = None


class _NoManager(Exception):
    """`with` cannot enter what the function returned."""


def _new() -> Context:
    return Context(is_prefill=False, slot_mapping=torch.tensor([3], dtype=torch.int32))


def _now(context: Context) -> str:
    """What `get_context()` finds, in words."""
    try:
        found = get_context()
    except EngineError:
        return NONE
    return THE_ONE if found is context else ANOTHER


def _inside(use: Use) -> list[str]:
    context = _new()
    with use(context) as given:
        return [_now(context), THE_ONE if given is context else show_kind(given)]


def _after(use: Use) -> list[str]:
    context = _new()
    with use(context):
        pass
    return [_now(context)]


def _two_steps(use: Use) -> list[str]:
    context = _new()
    with use(_new()):
        pass
    with use(context):
        seen = _now(context)
    return [seen, _now(context)]


def _left_by(error: type[BaseException]) -> Callable[[Use], list[str]]:
    def script(use: Use) -> list[str]:
        context = _new()
        what = "it was swallowed"
        try:
            with use(context):
                _fail(error)
        except error:
            what = "it came out"
        return [what, _now(context)]

    return script


def _fail(error: type[BaseException]) -> None:
    raise error


def _nesting(use: Use) -> list[str]:
    refusal = _NOT_REFUSED
    with use(_new()):
        try:
            with use(_new()):
                pass
        except Exception as error:
            refusal = type(error).__name__
    return [refusal]


def _after_nesting(use: Use) -> list[str]:
    outer = _new()
    with use(outer):
        try:
            with use(_new()):
                pass
        except Exception:
            pass
        seen = _now(outer)
    return [seen, _now(outer)]


def _not_entered(use: Use) -> list[str]:
    context = _new()
    manager = use(context)
    before = _now(context)
    with manager:
        return [before, _now(context)]


_SCRIPTS: dict[str, Callable[[Use], list[str]]] = {
    "inside": _inside,
    "after": _after,
    "two steps": _two_steps,
    "an exception": _left_by(ValueError),
    "Ctrl-C": _left_by(KeyboardInterrupt),
    "nesting": _nesting,
    "after nesting": _after_nesting,
    "not entered": _not_entered,
}


def show_kind(value: object) -> str:
    """A value that is not the context, in words."""
    return ANOTHER if isinstance(value, Context) else f"{type(value).__name__}"


def compare_use(case: Case, expected: Any, got: Any) -> Difference | None:
    """What was seen against what should be, with the reason."""
    wrong = wrong_kind(got, "a list")
    if wrong or got == expected:
        return wrong
    if got[0] == _NO_MANAGER:
        return Difference(
            f"`with` cannot enter what your function gives, a {got[1]}: keep @contextmanager above "
            "it, and a `yield` in it"
        )
    if case.check == "nesting":
        return _nesting_difference(got[0])
    if case.check == "inside" and got[0] == THE_ONE:
        return Difference(f"`as` should give {THE_ONE}, it gives {got[1]}: yield it", binding=False)
    index = next(i for i, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b)
    if got[index] == "it was swallowed":
        return Difference("the exception should come out of the block, your function swallowed it")
    return Difference(
        f"get_context() should find {expected[index]}, it finds {got[index]}: {_why(case, got)}"
    )


def _nesting_difference(got: str) -> Difference:
    if got == _NOT_REFUSED:
        return Difference(
            "EngineError should be raised, nothing was: the second step would read and write the "
            "first one's slots, or leave it without a context"
        )
    return Difference(f"the contract says EngineError, yours raises {got}", binding=False)


def _why(case: Case, got: list[str]) -> str:
    if case.check in ("an exception", "Ctrl-C"):
        return "the reset must run however the block ends (try ... finally, and no `except`)"
    if case.check == "after nesting":
        if got[0] == THE_ONE:
            return "leaving the first block must still reset it"
        return "refuse before anything is set, outside the try whose finally resets"
    if case.check == "not entered":
        return "set it when the block is entered, not when the function is called"
    if got[0] == NONE:
        return "set _state.current, which get_context reads; a variable of your own is another"
    return "the step is over: its tensors must not be found by the next one"
