"""Lesson 04's contract for the bucket list and for picking: policies, checked as numbers."""

import random
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, show, wrong_kind
from nanoengine.engine.cuda_graph import graph_buckets

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture

Args = tuple[Any, ...]
_RANDOM = 60
_BEYOND = "a batch beyond the largest graph"
_NO_GRAPHS = "an engine without graphs"


def bucket_cases() -> list[Case]:
    """(max_num_seqs, limit, step), from the default to ends that no step hits."""
    hand: list[tuple[str, Args]] = [
        ("the default engine", (512,)),
        ("a multiple of 16", (64,)),
        ("a missing tail", (100,)),
        ("a missing tail", (12,)),
        ("a missing tail", (17,)),
        ("few sequences", (8,)),
        ("few sequences", (3,)),
        ("few sequences", (1,)),
        ("few sequences", (16,)),
        ("more than graphs are made for", (600,)),
        ("more than graphs are made for", (64, 40)),
        ("another step", (100, 512, 32)),
        ("another step", (100, 512, 8)),
    ]
    rng = random.Random(401)
    drawn = {(rng.randint(1, 700), rng.choice((512, 200, 64)), rng.choice((8, 16, 32, 64)))
             for _ in range(_RANDOM)}  # fmt: skip
    hand += [("random engines", args) for args in sorted(drawn)]
    return [
        Case(check, f"graph_buckets({', '.join(map(str, args))})", args) for check, args in hand
    ]


def compare_buckets(case: Case, expected: Any, got: Any) -> Difference | None:
    """Ends, order, then the first size that is missing or too much."""
    wrong = wrong_kind(got, "a list of batch sizes")
    if wrong or got == expected:
        return wrong
    if not got:
        return Difference(f"there are no buckets: batches of 1 to {expected[-1]} need a graph")
    if not all(type(size) is int for size in got):
        return Difference(f"expected batch sizes {show(expected)}, you gave {show(got)}")
    largest = expected[-1]
    if max(got) < largest:
        return Difference(
            f"the largest batch has {largest} sequences, your largest bucket is {max(got)}: "
            f"{max(got) + 1} to {largest} would find no graph"
        )
    if max(got) > largest:
        return Difference(f"no batch is larger than {largest}, you have a bucket {max(got)}")
    if min(got) < 1:
        return Difference(f"no batch has {min(got)} sequences: the smallest bucket is 1")
    if len(set(got)) < len(got):
        twice = next(size for size in got if got.count(size) > 1)
        return Difference(f"bucket {twice} is there twice: it would be captured twice")
    if got != sorted(got):
        return Difference("the buckets should ascend: the first that is large enough is taken")
    return _first_gap(expected, got)


def _first_gap(expected: list[int], got: list[int]) -> Difference:
    missing = [size for size in expected if size not in got]
    extra = [size for size in got if size not in expected]
    if missing and (not extra or missing[0] < extra[0]):
        above = next(size for size in got if size > missing[0])
        return Difference(
            f"bucket {missing[0]} is missing: {missing[0]} sequences would be padded to {above}"
        )
    before = max((size for size in expected if size < extra[0]), default=0)
    after = next(size for size in expected if size > extra[0])
    text = f"bucket {extra[0]} is not in the policy: after {before} comes {after}"
    if len(got) > len(expected):
        text += f"; {len(got)} graphs instead of {len(expected)} cost memory and time at the start"
    return Difference(text)


def pick_cases() -> list[Case]:
    """(batch_size, buckets): on, between and beyond the buckets, and no buckets at all."""
    default = graph_buckets(512)
    hand: list[tuple[str, Args]] = [
        ("between two buckets", (37, default)),
        ("exactly a bucket", (48, default)),
        ("one more than a bucket", (49, default)),
        ("small batches", (1, default)),
        ("small batches", (3, default)),
        ("small batches", (9, default)),
        ("the largest bucket", (512, default)),
        (_BEYOND, (513, default)),
        (_BEYOND, (97, [1, 2, 4, 8, 96])),
        ("an odd last bucket", (97, graph_buckets(100))),
        ("an odd last bucket", (12, graph_buckets(12))),
        ("one bucket", (1, [1])),
        (_NO_GRAPHS, (5, [])),
    ]
    rng = random.Random(402)
    seen = {repr(args) for _, args in hand}
    while len(hand) < _RANDOM:
        buckets = sorted(rng.sample(range(1, 80), rng.randint(1, 9)))
        args = (rng.randint(1, 84), buckets)
        if repr(args) not in seen:
            seen.add(repr(args))
            hand.append(("random buckets", args))
    return [Case(check, _pick_situation(args), args) for check, args in hand]


def _pick_situation(args: Args) -> str:
    batch, buckets = args
    return f"a batch of {batch}, buckets {_short(buckets)}"


def _short(buckets: list[int]) -> str:
    if len(buckets) <= 10:
        return show(buckets)
    return f"[{', '.join(map(str, buckets[:6]))}, ..., {buckets[-1]}]"


def compare_pick(case: Case, expected: Any, got: Any) -> Difference | None:
    """The bucket, or None; what a wrong one would do."""
    batch, buckets = case.args
    if type(got) is type(expected) and got == expected:
        return None
    if expected is None:
        what = "there are no graphs" if not buckets else f"the largest graph holds {buckets[-1]}"
        return Difference(f"{what}: expected None (run eagerly), you gave {show(got)}")
    if got is None:
        return Difference(f"expected bucket {expected}, you returned None: is a `return` missing?")
    if type(got) is not int:
        return Difference(f"expected bucket {expected}, you gave {show(got)}")
    why = ""
    if got < batch and got != buckets.index(expected):
        why = f": it does not hold {batch} sequences"
    elif got not in buckets:
        index = bisect_left(buckets, batch)
        why = ": that is its index, not its size" if got == index else ": no graph has that size"
    elif got > expected:
        why = f": {expected} holds them with {got - expected} padded rows fewer"
    return Difference(f"expected bucket {expected}, you gave {got}{why}")


def draw_buckets(args: Args, expected: Any, got: Any) -> "Picture | None":
    """Padded rows over the batch size, with the right buckets and the student's."""
    from nanoengine.viz.graphs import padding_waste

    if not isinstance(got, list) or not all(type(size) is int and size > 0 for size in got):
        return None
    if not got:
        return None
    return padding_waste({"the policy": expected, "yours": sorted(got)}, expected[-1])
