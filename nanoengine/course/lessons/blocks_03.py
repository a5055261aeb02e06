"""Lesson 03's contract for the bytes of one block."""

import random
from typing import Any, NamedTuple

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, show

RANDOM_CASES = 60
Args = tuple[Any, ...]


class Block(NamedTuple):
    """Arguments of block_bytes, in its order."""

    num_layers: int
    block_size: int
    num_kv_heads: int
    head_dim: int
    itemsize: int
    tp: int = 1


def block_cases() -> list[Case]:
    """Known models first, then tensor parallelism, then random shapes."""
    hand: list[tuple[str, Args]] = [
        ("Qwen3-0.6B", (28, 256, 8, 128, 2)),
        ("another block size", (28, 16, 8, 128, 2)),
        ("float32", (28, 256, 8, 128, 4)),
        ("one byte a number", (28, 256, 8, 128, 1)),
        ("a tiny model", (2, 4, 2, 8, 4)),
        ("one kv head", (18, 64, 1, 256, 2)),
        ("two ranks", (28, 256, 8, 128, 2, 2)),
        ("one kv head a rank", (36, 256, 8, 128, 2, 8)),
        ("more ranks than kv heads", (36, 256, 8, 128, 2, 16)),
    ]
    rng = random.Random(301)
    for _ in range(RANDOM_CASES):
        heads = 2 ** rng.randint(0, 5)
        shape = (rng.randint(1, 80), 2 ** rng.randint(2, 9), heads, 8 * rng.randint(1, 32))
        hand.append(("random shapes", (*shape, rng.choice((1, 2, 4)), 2 ** rng.randint(0, 6))))
    return [Case(check, _situation(check, Block(*args)), args) for check, args in hand]


def _situation(check: str, block: Block) -> str:
    return (
        f"{check} ({block.num_layers} layers, blocks of {block.block_size} tokens, "
        f"{block.num_kv_heads} kv heads of {block.head_dim}, {block.itemsize} bytes a number, "
        f"tp {block.tp})"
    )


def compare_bytes(case: Case, expected: Any, got: Any) -> Difference | None:
    """Equal; otherwise which factor is missing or too much."""
    wrong = not_whole(expected, got, "bytes")
    if wrong or expected == got:
        return wrong
    hint = _why(Block(*case.args), expected, got)
    return Difference(f"expected {expected} bytes, you gave {got}{hint and f': {hint}'}")


def not_whole(expected: int, got: Any, what: str) -> Difference | None:
    """The difference when `got` is no integer at all."""
    if type(got) is int:
        return None
    if got is None:
        return Difference(f"expected {expected} {what}, you returned None: is a `return` missing?")
    hint = ": divide with //" if isinstance(got, float) else ""
    return Difference(f"expected the whole number {expected}, you gave {show(got)}{hint}")


def _why(block: Block, expected: int, got: int) -> str:
    """What the factor between the two numbers tells, if it tells something."""
    if block.tp > block.num_kv_heads and got < expected:
        return "a rank cannot keep less than one whole kv head"
    if got == expected * block.tp > expected:
        return f"each of the {block.tp} ranks keeps only its share of the kv heads"
    factors = {
        "K and V": 2,
        "the layers": block.num_layers,
        "the tokens of a block": block.block_size,
        "the kv heads": max(1, block.num_kv_heads // block.tp),
        "head_dim": block.head_dim,
        "the bytes of a number": block.itemsize,
    }
    large, small = max(expected, got), min(expected, got)
    if small <= 0 or large % small:
        return ""
    size = "small" if got < expected else "large"
    names = [name for name, factor in factors.items() if factor == large // small]
    if got == 8 * expected:
        names.append("bits instead of bytes")
    return f"{large // small} times too {size}; is it {' or '.join(names)}?" if names else ""
