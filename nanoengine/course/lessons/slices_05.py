"""Lesson 05's contract for a rank's part of an axis."""

import random
from collections.abc import Callable
from typing import Any

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, plain, show

Args = tuple[Any, ...]
RANDOM_CASES = 40


def slice_cases() -> list[Case]:
    """One rank, each of several, axes that cannot be divided; args: size, rank, ranks, name."""
    hand: list[tuple[str, Args]] = [
        ("one rank", (12, 0, 1)),
        ("the first of two", (12, 0, 2)),
        ("the last of two", (12, 1, 2)),
        ("in the middle", (12, 1, 4)),
        ("in the middle", (3072, 5, 8)),
        ("one a rank", (4, 3, 4)),
        ("cannot be divided", (6, 0, 4, "num_attention_heads")),
        ("cannot be divided", (3, 1, 2, "num_key_value_heads")),
        ("cannot be divided", (6, 0, 8, "num_attention_heads")),
        ("cannot be divided", (50257, 2, 4)),
    ]
    rng = random.Random(501)
    for _ in range(RANDOM_CASES):
        ranks = rng.choice((2, 3, 4, 6, 8))
        size = ranks * rng.randint(1, 90) + (rng.random() < 0.25) * rng.randint(1, ranks - 1)
        args = (size, rng.randrange(ranks), ranks, "intermediate_size")
        hand.append(("random sizes", args))
    unique = {args: check for check, args in reversed(hand)}
    return [Case(check, _slice_situation(args), args) for args, check in reversed(unique.items())]


def _slice_situation(args: Args) -> str:
    size, rank, ranks, *name = args
    return f"{name[0] if name else 'size'}={size}, rank {rank} of {ranks}"


def observe_slice(function: Callable[..., Any], args: Args) -> Any:
    """[start, stop, step], or {"raised": type, "message": text} of a refusal."""
    from nanoengine.errors import ConfigError

    try:
        found = function(*args)
    except (ConfigError, AssertionError) as error:
        return {"raised": type(error).__name__, "message": str(error)[:300]}
    if isinstance(found, slice):
        return [plain(found.start), plain(found.stop), 1 if found.step is None else found.step]
    return plain(found) if found is None else {"kind": type(found).__name__}


def compare_slice(case: Case, expected: Any, got: Any) -> Difference | None:
    """The same slice, or a refusal that names axis, size and ranks."""
    size, rank, ranks, *_ = case.args
    if isinstance(expected, dict):
        return _slice_refusal(case, got)
    if got is None:
        return Difference("expected a slice, you returned None: is a `return` missing?")
    if isinstance(got, dict) and "raised" in got:
        return Difference(f"{size} can be divided by {ranks}, but you raised {got['raised']}")
    if isinstance(got, dict):
        return Difference(f"expected a slice, you returned a {got['kind']}: slice(start, stop)")
    if any(type(number) is float for number in got):
        given = ", ".join(map(show, got[:2]))
        return Difference(f"a slice's numbers must be int, yours are {given}: divide with //")
    if got == expected:
        return None
    part = size // ranks
    why = ""
    if got[:2] == [rank * part, part]:
        why = ": a slice's second number is where it stops, not how long it is"
    elif got[1] == expected[1] - 1:
        why = ": a slice stops before its second number"
    elif got[2] != 1:
        why = ": a rank's part is one piece"
    elif got[0] == rank * ranks:
        why = ": rank r begins behind r parts"
    shown = ", ".join(map(show, got if got[2] != 1 else got[:2]))
    return Difference(f"expected slice({expected[0]}, {expected[1]}), you gave slice({shown}){why}")


def _slice_refusal(case: Case, got: Any) -> Difference | None:
    size, _, ranks, *name = case.args
    raised = got.get("raised") if isinstance(got, dict) else None
    if raised is None:
        found = f"slice({got[0]}, {got[1]})" if isinstance(got, list) else show(got)
        return Difference(
            f"{size} cannot be divided by {ranks}: expected ConfigError, you gave {found}; the "
            "ranks would not fit together"
        )
    if raised != "ConfigError":
        return Difference(f"expected ConfigError, you raised {raised}: say what does not fit")
    for word in (name[0] if name else "size", str(size), str(ranks)):
        if word not in got["message"]:
            return Difference(f"the ConfigError is right, but its message does not tell {word}")
    return None
