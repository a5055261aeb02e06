"""Lesson 01's contract for whole batches: prepare_prefill and prepare_decode."""

import random
from typing import TYPE_CHECKING, Any

from nanoengine.course.lessons.sequences import PrefillSequence, WorkerSequence
from nanoengine.course.lessons.slots_01 import (
    BLOCK_SIZES,
    RANDOM_CASES,
    Args,
    random_table,
    tables_difference,
)
from nanoengine.course.registry import Case
from nanoengine.course.values import TYPE, Difference, first_difference, show, wrong_kind

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture


# -- prepare_prefill ---------------------------------------------------------------------------

# a sequence in plain data: tokens, cached, scheduled, blocks
Spec = tuple[list[int], int, int, list[int]]


def _tokens(rng: random.Random, count: int) -> list[int]:
    return rng.sample(range(1000), count)


def _spec(rng: random.Random, length: int, cached: int, scheduled: int, size: int) -> Spec:
    return _tokens(rng, length), cached, scheduled, random_table(rng, -(-length // size))


def prefill_cases() -> list[Case]:
    """Fresh, cached, chunked, mixed and warm-up batches, then random ones."""
    rng = random.Random(103)
    worked = (_tokens(rng, 10), 4, 6, [7, 2, 5])
    hand: list[tuple[str, list[Spec], int]] = [
        ("one fresh sequence", [_spec(rng, 6, 0, 6, 4)], 4),
        ("one cached block", [worked], 4),
        ("two fresh sequences", [_spec(rng, 3, 0, 3, 4), _spec(rng, 5, 0, 5, 4)], 4),
        ("a chunk that ends inside a block", [_spec(rng, 12, 0, 5, 4)], 4),
        ("a chunk that goes on inside a block", [_spec(rng, 14, 5, 4, 4)], 4),
        ("fresh and cached together", [_spec(rng, 3, 0, 3, 4), _spec(rng, 9, 4, 5, 4)], 4),
        ("cached before fresh", [_spec(rng, 11, 8, 3, 4), _spec(rng, 7, 0, 7, 4)], 4),
        ("one token each", [_spec(rng, 1, 0, 1, 4), _spec(rng, 9, 8, 1, 4)], 4),
        ("warm-up without blocks", [(_tokens(rng, 4), 0, 4, []), (_tokens(rng, 4), 0, 4, [])], 4),
        ("other block sizes", [_spec(rng, 21, 16, 5, 16), _spec(rng, 9, 0, 6, 16)], 16),
    ]
    for _ in range(RANDOM_CASES):
        size, specs = rng.choice(BLOCK_SIZES), []
        for _ in range(rng.randint(1, 5)):
            length = rng.randint(1, 30)
            cached = rng.choice((0, rng.randint(0, length - 1)))
            specs.append(_spec(rng, length, cached, rng.randint(1, length - cached), size))
        hand.append(("random batches", specs, size))
    return [
        Case(check, _prefill_situation(check, specs, size), (specs, size))
        for check, specs, size in hand
    ]


def _prefill_situation(check: str, specs: list[Spec], size: int) -> str:
    parts = [f"{len(t)} tokens, {c} cached, {s} scheduled" for t, c, s, _ in specs]
    shown = "; ".join(parts[:2]) + ("; ..." if len(parts) > 2 else "")
    return f"{check} (block size {size}: {shown})"


def prefill_arguments(args: Args) -> Args:
    """Plain specs -> sequences."""
    return [PrefillSequence(*spec) for spec in args[0]], args[1]


_PREFILL_WHY = {
    "input_ids": "this step computes tokens [cached, cached + scheduled)",
    "positions": "positions go on from the cached tokens",
    "slot_mapping": "each computed token is written to its own slot; without blocks there is none",
    "cu_seqlens_q": "queries are the scheduled tokens",
    "cu_seqlens_k": "keys reach from position 0 to the end of this chunk",
    "max_seqlen_q": "the longest chunk",
    "max_seqlen_k": "the longest cached + scheduled",
}


def compare_prefill(case: Case, expected: Any, got: Any) -> Difference | None:
    """Field by field; over-long maxima and needless tables are remarks."""
    specs = case.args[0]
    nowhere = _writes_nowhere(specs, got)
    if nowhere:
        got = {**got, "slot_mapping": expected["slot_mapping"]}
    wrong = _fields_difference(expected, got, _PREFILL_WHY)
    if wrong:
        return wrong
    for name in ("max_seqlen_q", "max_seqlen_k"):
        if not isinstance(got[name], int) or got[name] < expected[name]:
            return Difference(_scalar(name, expected[name], got[name], _PREFILL_WHY[name]))
    difference = _prefill_tables(expected["block_tables"], got["block_tables"], specs)
    if difference:
        return difference
    for name in ("max_seqlen_q", "max_seqlen_k"):
        if got[name] != expected[name]:
            text = _scalar(name, expected[name], got[name], "a larger one only costs time")
            return Difference(text, binding=False)
    return nowhere


def _writes_nowhere(specs: list[Spec], got: Any) -> Difference | None:
    """A warm-up's tokens with slot -1 instead of none: harmless."""
    if any(blocks for *_, blocks in specs) or not isinstance(got, dict):
        return None
    slots = got.get("slot_mapping")
    if slots and slots == [-1] * sum(scheduled for _, _, scheduled, _ in specs):
        return Difference(
            "slot_mapping is -1 for tokens without blocks: expected []", binding=False
        )
    return None


def _prefill_tables(expected: Any, got: Any, specs: list[Spec]) -> Difference | None:
    owned = [len(blocks) for *_, blocks in specs]
    if expected is None:
        if got is None:
            return None
        needless = "block_tables should be None: no sequence has history to read"
        return Difference(f"{needless}, you gave {show(got)}", binding=not all(owned))
    if got is None:
        return Difference(
            "block_tables is None, but a sequence has history: its keys are in the cache"
        )
    difference = tables_difference(expected, got, owned)
    return difference and Difference(f"block_tables: {difference.text}", difference.binding)


def draw_prefill(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The packed batch as it should be, and the student's borders."""
    from nanoengine.viz.batch import packed_batch

    return packed_batch(expected, got=got)


# -- prepare_decode ----------------------------------------------------------------------------


def decode_cases() -> list[Case]:
    """Lengths at, before and behind a block's border; an unread token; random batches."""
    rng = random.Random(104)
    hand: list[tuple[str, list[tuple[int, int, list[int]]], int]] = [
        ("two sequences", [(10, 501, [7, 2, 5]), (5, 502, [3, 9])], 4),
        ("the first token of a new block", [(9, 611, [7, 2, 5])], 4),
        ("the last place of a block", [(8, 612, [6, 1])], 4),
        ("one token", [(1, 613, [4])], 4),
        ("block 0 in use", [(7, 614, [5, 0])], 4),
        ("a token still on the device", [(6, -3, [8, 2]), (3, -1, [1])], 4),
        ("other block sizes", [(17, 615, [2, 9]), (16, 616, [4])], 16),
    ]
    for _ in range(RANDOM_CASES):
        size, specs = rng.choice(BLOCK_SIZES), []
        for _ in range(rng.randint(1, 6)):
            length = rng.randint(1, 40)
            specs.append((length, rng.randint(0, 999), random_table(rng, -(-length // size))))
        hand.append(("random batches", specs, size))
    return [
        Case(check, _decode_situation(check, specs, size), (specs, size))
        for check, specs, size in hand
    ]


def _decode_situation(check: str, specs: list[tuple[int, int, list[int]]], size: int) -> str:
    parts = [f"{n} tokens in blocks {show(blocks)}" for n, _, blocks in specs]
    shown = "; ".join(parts[:2]) + ("; ..." if len(parts) > 2 else "")
    return f"{check} (block size {size}: {shown})"


def decode_arguments(args: Args) -> Args:
    """Plain specs -> sequences as a worker sees them."""
    return [WorkerSequence(n, token, list(blocks)) for n, token, blocks in args[0]], args[1]


_DECODE_WHY = {
    "input_ids": "decode feeds the newest token, last_token",
    "positions": "the newest token of n stands at position n - 1",
    "slot_mapping": "the newest token is written to the slot of position n - 1",
    "context_lens": "the new token is written first and counts: n, not n - 1",
}


def compare_decode(case: Case, expected: Any, got: Any) -> Difference | None:
    """Field by field."""
    wrong = _fields_difference(expected, got, _DECODE_WHY)
    if wrong:
        return wrong
    owned = [len(blocks) for *_, blocks in case.args[0]]
    if got["block_tables"] is None:
        return Difference("block_tables is None: decode always reads its keys from the cache")
    difference = tables_difference(expected["block_tables"], got["block_tables"], owned)
    return difference and Difference(f"block_tables: {difference.text}", difference.binding)


def draw_decode(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The block tables as they should be, and the student's."""
    from nanoengine.viz.tables import block_tables

    mine = got.get("block_tables") if isinstance(got, dict) else None
    return block_tables(expected["block_tables"], [len(s[2]) for s in args[0]], got=mine)


# -- shared ------------------------------------------------------------------------------------


def _fields_difference(
    expected: dict[str, Any], got: Any, why: dict[str, str]
) -> Difference | None:
    """The first difference in the list fields named in `why`, in that order."""
    kind = expected[TYPE]
    if not isinstance(got, dict):
        if got is None:
            return Difference(f"expected a {kind}, you returned None: is a `return` missing?")
        return Difference(f"expected a {kind}, you returned {show(got)}")
    for name in expected:
        if name not in got:
            return Difference(f"expected a {kind}, you returned {show(got)} without {name}")
    for name, reason in why.items():
        if not isinstance(expected[name], list):
            continue
        wrong = wrong_kind(got[name], f"{name} as a list")
        if wrong:
            return wrong
        index = first_difference(expected[name], got[name])
        if index is None:
            continue
        wanted, given = expected[name], got[name]
        if index >= len(wanted) or index >= len(given):
            return Difference(
                f"{name} should have {len(wanted)} entries, you gave {len(given)}: {reason}"
            )
        return Difference(_scalar(f"{name}[{index}]", wanted[index], given[index], reason))
    return None


def _scalar(name: str, wanted: Any, given: Any, reason: str) -> str:
    return f"{name} should be {show(wanted)}, you gave {show(given)}: {reason}"
