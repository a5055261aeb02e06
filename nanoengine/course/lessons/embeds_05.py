"""Lesson 05's contract for the vocabulary cut across ranks."""

import random
from collections.abc import Callable
from typing import Any

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference

Args = tuple[Any, ...]
_NAMES = ("input_ids", "weight")
_RANDOM = 30
_PADDING = 99.0  # rows of the shard behind the vocabulary's end
_HIDDEN = 4


def embed_cases() -> list[Case]:
    """(ids, first, last, rows of the shard, dtype): the borders, padding, a rank of no rows."""
    hand: list[tuple[str, Args]] = [
        ("all ids here", ([4, 7, 5, 5], 4, 8, 4, "float32")),
        ("the first rank", ([0, 3, 1], 0, 4, 4, "float32")),
        ("ids of other ranks", ([0, 5, 9], 4, 8, 4, "float32")),
        ("the borders", ([3, 4, 7, 8], 4, 8, 4, "float32")),
        ("none here", ([0, 3, 11], 4, 8, 4, "float32")),
        ("far away", ([151935, 0, 6], 4, 8, 4, "float32")),
        ("padding rows", ([96, 95, 97, 0], 75, 97, 25, "float32")),
        ("a rank that holds padding alone", ([4, 0, 2], 5, 5, 2, "float32")),
        ("a rank of one row", ([5, 4, 3], 4, 5, 1, "float32")),
        ("bfloat16", ([4, 6, 2], 4, 8, 4, "bfloat16")),
        ("one id", ([6], 4, 8, 4, "float32")),
    ]
    rng = random.Random(504)
    for _ in range(_RANDOM):
        vocab, ranks = rng.randint(5, 60), rng.choice((2, 3, 4))
        rows = -(-vocab // ranks)
        first = min(rng.randrange(ranks) * rows, vocab)
        ids = [rng.randrange(vocab) for _ in range(rng.randint(1, 9))]
        hand.append(("random ids", (ids, first, min(first + rows, vocab), rows, "float32")))
    return [Case(check, _situation(args), args) for check, args in hand]


def _situation(args: Args) -> str:
    ids, first, last, rows, dtype = args
    padding = rows - (last - first)
    behind = f" and {padding} of padding" if padding else ""
    other = f", {dtype}" if dtype != "float32" else ""
    return f"ids {ids}, rows [{first}, {last}) here{behind}{other}"


def embed_arguments(args: Args) -> Args:
    """ids, the shard, first, last. Row r of the whole table holds r + 1 and fractions of it."""
    import torch

    ids, first, last, rows, dtype = args
    weight = torch.full((rows, _HIDDEN), _PADDING)
    own = torch.arange(first, last, dtype=torch.float32)[:, None] + 1
    weight[: last - first] = own * torch.tensor([1.0, 0.5, -1.0, 0.25])
    return torch.tensor(ids), weight.to(getattr(torch, dtype)), first, last


def observe_embed(function: Callable[..., Any], args: Args) -> dict[str, Any]:
    """The result, its shape and dtype, and which tensor argument was changed."""
    import torch

    from nanoengine.course.lessons.tensors import call_with_tensors

    kinds: list[str | None] = []

    def called(*given: Any) -> Any:
        result = function(*given)
        tensor = isinstance(result, torch.Tensor)
        kinds.append(str(result.dtype).removeprefix("torch.") if tensor else None)
        return result.float() if tensor and result.is_floating_point() else result

    return {**call_with_tensors(called, args), "dtype": kinds[0]}


def compare_embed(case: Case, expected: Any, got: Any) -> Difference | None:
    """The first row that is another one, and what it is instead."""
    from nanoengine.course.lessons.tensors import first_far_row, not_a_tensor

    wrong = not_a_tensor(expected, got, _NAMES)
    if wrong:
        return wrong
    ids, first, last, _, dtype = case.args
    if got["dtype"] != dtype:
        return Difference(f"expected the weight's dtype, {dtype}, you returned {got['dtype']}")
    row = first_far_row(expected["result"], got["result"])
    if row is None:
        return None
    mine = first <= ids[row] < last
    wanted = f"row {ids[row] - first} of the shard" if mine else "zeros, it is another rank's"
    given = got["result"][row][0]
    found = "zeros" if not any(got["result"][row]) else f"the row of id {given - 1:g}"
    if given == _PADDING:
        found = "a row of padding"
    elif given != given:
        found = "NaN"
    return Difference(f"id {ids[row]} should give {wanted}; you gave {found}")
