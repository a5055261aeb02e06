"""Lesson 05's contract for a worker's loop: what it runs, when it ends, what it lets through."""

import random
from array import array
from collections.abc import Callable
from typing import Any

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, plain, show

Args = tuple[Any, ...]
_RANDOM = 30
_RUN, _EXIT = 1, 0
_FAILS = 5  # a kind whose handler raises
_GONE = "rank 0 is gone"
_LOOKED_UP = "a handler of EXIT is looked up"


class Planted(Exception):
    """What a handler raises."""


class WouldWait(BaseException):
    """The loop asked for a message that never comes: in a real worker it would wait for ever."""


def loop_cases() -> list[Case]:
    """(messages as (kind, values), kinds that have a handler, whether rank 0 then goes away)."""
    hand: list[tuple[str, list[tuple[int, list[int]]], list[int]]] = [
        ("one message", [(_RUN, [7, 8]), (_EXIT, [])], [_RUN]),
        ("EXIT at once", [(_EXIT, [])], [_RUN]),
        ("several messages", [(_RUN, [1]), (_RUN, [2, 3]), (_RUN, [4]), (_EXIT, [])], [_RUN]),
        ("several kinds", [(3, [1]), (_RUN, [2]), (3, [5]), (_EXIT, [])], [_RUN, 3]),
        ("a message of no values", [(_RUN, []), (3, []), (_RUN, [6]), (_EXIT, [])], [_RUN, 3]),
        ("nothing is read behind EXIT", [(_RUN, [1]), (_EXIT, []), (_RUN, [2])], [_RUN]),
        ("an unknown kind", [(_RUN, [1]), (9, [4]), (_RUN, [2]), (_EXIT, [])], [_RUN]),
        ("a handler that raises", [(_RUN, [1]), (_FAILS, []), (_RUN, [2])], [_RUN, _FAILS]),
    ]
    rng = random.Random(505)
    for _ in range(_RANDOM):
        kinds = rng.sample(range(1, 9), rng.randint(1, 4))
        sent = [
            (rng.choice(kinds), [rng.randint(-9, 99) for _ in range(rng.randint(0, 3))])
            for _ in range(rng.randint(0, 7))
        ]
        hand.append(("random messages", [*sent, (_EXIT, []), (kinds[0], [1])], kinds))
    cases = [(check, ([[k, v] for k, v in sent], kinds, False)) for check, sent, kinds in hand]
    cases.append(("rank 0 goes away", ([[_RUN, [1]]], [_RUN], True)))
    seen: dict[str, Case] = {}
    for check, args in cases:
        seen.setdefault(repr(args), Case(check, _situation(args), args))
    return list(seen.values())


def _situation(args: Args) -> str:
    sent, _, gone = args
    names = {_EXIT: "EXIT", _RUN: "RUN", _FAILS: "one that fails"}
    shown = ", ".join(names.get(kind, f"kind {kind}") for kind, _ in sent[:6])
    more = " ..." if len(sent) > 6 else ""
    return f"messages {shown}{more}{'; then rank 0 goes away' if gone else ''}"


def observe_loop(function: Callable[..., Any], args: Args) -> dict[str, Any]:
    """{"handled": [[kind, values]], "asked": messages asked for, "ended": how}."""
    from nanoengine.distributed.rpc import Message
    from nanoengine.errors import EngineError

    sent, kinds, gone = args
    asked = 0
    handled: list[Any] = []

    def receive() -> Message:
        nonlocal asked
        asked += 1
        if asked > len(sent):
            raise EOFError(_GONE) if gone and asked == len(sent) + 1 else WouldWait
        kind, values = sent[asked - 1]
        return Message(kind, array("i", values))

    def handler(kind: int) -> Callable[[Any], bool]:
        def handle(values: Any) -> bool:
            handled.append([kind, _plain_values(values)])
            if kind == _FAILS:
                raise Planted("planted by the grader")
            return False  # what a handler returns means nothing

        handle.__qualname__ = f"handler of kind {kind}"
        return handle

    ended = "return"
    try:
        function(receive, {kind: handler(kind) for kind in kinds})
    except (EngineError, EOFError, Planted, WouldWait) as error:
        ended = type(error).__name__
    except KeyError as error:
        if error.args != (_EXIT,):
            raise
        ended = _LOOKED_UP
    return {"handled": handled, "asked": asked, "ended": ended}


def _plain_values(values: Any) -> Any:
    """The numbers of an array; anything else in words."""
    if isinstance(values, tuple) and len(values) == 2:
        return "the whole message"
    if isinstance(values, list):
        return "a list, where message.values is an array"
    return plain(list(values)) if isinstance(values, array) else show(plain(values))


def compare_loop(case: Case, expected: Any, got: Any) -> Difference | None:
    """What was run first, then how the loop ended, then what it read too much."""
    *_, gone = case.args
    for index, (wanted, given) in enumerate(zip(expected["handled"], got["handled"], strict=False)):
        if wanted != given:
            return Difference(f"run {index + 1} should be {_run(wanted)}, it is {_run(given)}")
    if len(got["handled"]) > len(expected["handled"]):
        extra = got["handled"][len(expected["handled"])]
        return Difference(f"you ran {_run(extra)} although the loop was over: {_over(case)}")
    if len(got["handled"]) < len(expected["handled"]):
        missing = expected["handled"][len(got["handled"])]
        return Difference(f"{_run(missing)} was not run{_after(got['ended'])}")
    if got["ended"] != expected["ended"]:
        return _ending(expected["ended"], got["ended"], gone)
    if got["asked"] < expected["asked"]:
        return Difference(f"the loop ended behind message {got['asked']}: only EXIT ends it")
    if got["asked"] > expected["asked"]:
        return Difference(
            f"you asked for {got['asked']} messages, {expected['asked']} were due: {_over(case)}"
        )
    return None


def _run(handled: Any) -> str:
    kind, values = handled
    return f"the handler of kind {kind} with {values if isinstance(values, str) else show(values)}"


def _over(case: Case) -> str:
    if case.check == "a handler that raises":
        return "what a handler raises must end it, this rank is out of step"
    if case.check == "an unknown kind":
        return "a kind without a handler must raise EngineError"
    return "EXIT ends it"


def _after(ended: str) -> str:
    if ended == "return":
        return ": the loop ended before"
    return f": the loop ended with {ended}"


def _ending(expected: str, got: str, gone: bool) -> Difference:
    if got == _LOOKED_UP:
        return Difference("you look for a handler of EXIT: it has none, it ends the loop")
    if got == "WouldWait":
        hint = "return" if expected == "return" else f"raise {expected}"
        return Difference(
            f"the loop asked for one message more, and would wait for ever: it should {hint}"
        )
    if gone:
        return Difference("an EOFError of `receive` is kept; the contract lets it through", False)
    if expected == "Planted":
        return Difference(
            "the handler's exception was kept: let it through, rank 0 must hear of it"
        )
    if expected == "EngineError":
        return Difference(
            "a kind without a handler was passed over: raise EngineError, or the other ranks "
            "wait for this one"
        )
    return Difference(f"the loop should return, it raised {got}")
