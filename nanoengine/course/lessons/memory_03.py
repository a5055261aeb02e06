"""Lesson 03's contract for sizes: the bytes of a block, and how many blocks fit."""

import random
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, show

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture

GIB, MIB = 1 << 30, 1 << 20
RANDOM_CASES = 60
_UNITS = (1, 1 << 10, MIB, GIB, 10**3, 10**6, 10**9)  # a message may give bytes, KiB, MB ...
Args = tuple[Any, ...]


def _not_whole(expected: int, got: Any, what: str) -> Difference | None:
    """The difference when `got` is not an integer at all."""
    if type(got) is int:
        return None
    if got is None:
        return Difference(f"expected {expected} {what}, you returned None: is a `return` missing?")
    hint = ": divide with //" if isinstance(got, float) else ""
    return Difference(f"expected the whole number {expected}, you gave {show(got)}{hint}")


# -- block_bytes -------------------------------------------------------------------------------


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
        ("the grading model", (2, 4, 2, 8, 4)),
        ("one kv head", (18, 64, 1, 256, 2)),
        ("two ranks", (28, 256, 8, 128, 2, 2)),
        ("a kv head a rank", (36, 256, 8, 128, 2, 8)),
        ("more ranks than kv heads", (36, 256, 8, 128, 2, 16)),
    ]
    rng = random.Random(301)
    for _ in range(RANDOM_CASES):
        heads = 2 ** rng.randint(0, 5)
        shape = (rng.randint(1, 80), 2 ** rng.randint(2, 9), heads, 8 * rng.randint(1, 32))
        hand.append(("random shapes", (*shape, rng.choice((1, 2, 4)), 2 ** rng.randint(0, 6))))
    return [Case(check, _block_situation(check, Block(*args)), args) for check, args in hand]


def _block_situation(check: str, block: Block) -> str:
    return (
        f"{check}: {block.num_layers} layers, blocks of {block.block_size} tokens, "
        f"{block.num_kv_heads} kv heads of {block.head_dim}, {block.itemsize} bytes a number, "
        f"tp {block.tp}"
    )


def compare_bytes(case: Case, expected: Any, got: Any) -> Difference | None:
    """Equal; otherwise which factor is missing or too much."""
    wrong = _not_whole(expected, got, "bytes")
    if wrong or expected == got:
        return wrong
    hint = _missing_factor(Block(*case.args), expected, got)
    return Difference(f"expected {expected} bytes, you gave {got}{hint and f': {hint}'}")


def _missing_factor(block: Block, expected: int, got: int) -> str:
    """Words for the factor between the two numbers, as far as it tells something."""
    if got <= 0:
        return "with more ranks than kv heads each rank still keeps one whole head"
    if got == expected * block.tp > expected:
        return f"each of {block.tp} ranks keeps only its share of the kv heads"
    if block.tp > block.num_kv_heads and got < expected:
        return "a rank cannot keep less than one whole kv head"
    known = {
        "K and V are two tensors": 2,
        "the layers": block.num_layers,
        "the tokens of a block": block.block_size,
        "the kv heads": max(1, block.num_kv_heads // block.tp),
        "head_dim": block.head_dim,
        "the bytes of a number": block.itemsize,
    }
    too_small, too_large = divmod(expected, got), divmod(got, expected)
    for (factor, rest), what in ((too_small, "too small"), (too_large, "too large")):
        names = [name for name, value in known.items() if value == factor > 1]
        if rest == 0 and names:
            return f"{factor} times {what}; look at {' or '.join(names)}"
    if too_large == (8, 0):
        return "8 times too large: bytes are wanted, not bits"
    return ""


# -- num_kvcache_blocks ------------------------------------------------------------------------


class Memory(NamedTuple):
    """Arguments of num_kvcache_blocks, in its order."""

    total: int
    used: int
    peak: int
    current: int
    block_bytes: int
    utilization: float
    reserve: int = 0

    @property
    def budget(self) -> int:
        """Bytes left for blocks; may be negative."""
        growth = self.peak - self.current
        return int(self.total * self.utilization) - self.used - growth - self.reserve


def count_cases() -> list[Case]:
    """Invented readings of several cards, then cards too small, then random small numbers."""
    block = 28 * MIB
    hand: list[tuple[str, Args]] = [
        ("an 8 GiB card", (8 * GIB, 2 * GIB, 1800 * MIB, 1300 * MIB, block, 0.9)),
        ("no activations", (8 * GIB, 2 * GIB, 1300 * MIB, 1300 * MIB, block, 0.9)),
        ("a large peak", (24 * GIB, 3 * GIB, 9500 * MIB, 1400 * MIB, block, 0.9)),
        ("another utilization", (24 * GIB, 3 * GIB, 2900 * MIB, 1400 * MIB, block, 0.5)),
        ("the whole card", (24 * GIB, 3 * GIB, 2900 * MIB, 1400 * MIB, block, 1.0)),
        ("other processes", (80 * GIB, 31 * GIB, 3100 * MIB, 1210 * MIB, block, 0.9)),
        ("a large card", (140 * GIB, 2 * GIB, 1700 * MIB, 1180 * MIB, block, 0.92)),
        ("a reserve", (16 * GIB, 2 * GIB, 1900 * MIB, 1250 * MIB, block, 0.9, GIB)),
        ("exactly one block", (1000, 650, 170, 60, 140, 1.0, 100)),
        ("one byte short", (1000, 651, 170, 60, 140, 1.0, 100)),
        ("a card too small", (8 * GIB, 6 * GIB, 1810 * MIB, 590 * MIB, block, 0.9, 150 * MIB)),
        ("others fill the card", (24 * GIB, 23 * GIB, 2930 * MIB, 1310 * MIB, block, 0.85)),
    ]
    rng = random.Random(302)
    for _ in range(RANDOM_CASES):
        current = rng.randint(0, 900)
        used, peak = current + rng.randint(0, 700), current + rng.randint(0, 500)
        sizes = (rng.randint(1500, 5000), used, peak, current, rng.randint(7, 90))
        hand.append(("random readings", (*sizes, rng.randint(50, 100) / 100, rng.randint(0, 200))))
    return [Case(check, _count_situation(check, Memory(*args)), args) for check, args in hand]


def _count_situation(check: str, memory: Memory) -> str:
    *sizes, reserve = memory._replace(utilization=0)  # type: ignore[misc]
    whole = all(size % MIB == 0 for size in (*sizes, reserve))
    total, used, peak, current, block, *_ = (size // MIB if whole else size for size in memory[:5])
    unit = "MiB" if whole else "bytes"
    kept = reserve // MIB if whole else reserve
    return (
        f"{check} ({unit}: total {total}, used {used}, peak {peak}, current {current}, block "
        f"{block}, reserve {kept}; utilization {memory.utilization})"
    )


def count_or_refusal(function: Callable[..., Any], args: Args) -> Any:
    """The count; or {"raised": type, "message": text} for an error that says "no room"."""
    from nanoengine.errors import NotEnoughMemory

    try:
        result = function(*args)
    except (NotEnoughMemory, AssertionError) as error:
        return {"raised": type(error).__name__, "message": str(error)[:600]}
    return result if type(result) in (int, float, bool) or result is None else show_type(result)


def show_type(value: Any) -> str:
    """What a message calls a value that is no number."""
    return f"a {type(value).__name__}"


def compare_count(case: Case, expected: Any, got: Any) -> Difference | None:
    """The same count, or a refusal that names every term."""
    memory = Memory(*case.args)
    refused = got.get("raised") if isinstance(got, dict) else None
    if isinstance(expected, dict):
        return _refusal_difference(memory, got)
    if refused:
        return Difference(f"expected {expected}, you raised {refused}: {_left(memory)}")
    wrong = _not_whole(expected, got, "blocks")
    if wrong or expected == got:
        return wrong
    hint = _diagnosis(memory, got)
    return Difference(f"expected {expected} blocks, you gave {got}{hint and f': {hint}'}")


def _left(memory: Memory) -> str:
    return f"{memory.budget} bytes are left and a block takes {memory.block_bytes}"


def _refusal_difference(memory: Memory, got: Any) -> Difference | None:
    if not isinstance(got, dict):
        return Difference(
            f"no block fits ({_left(memory)}): expected NotEnoughMemory, you gave {show(got)}"
        )
    if got["raised"] != "NotEnoughMemory":
        return Difference(
            f"expected NotEnoughMemory, you raised {got['raised']}: whoever starts the engine "
            "needs the numbers and not an assertion"
        )
    named = _numbers(got["message"])
    for name, sizes in _terms(memory):
        if not all(any(_names(number, size) for number in named) for size in sizes):
            return Difference(
                f"the NotEnoughMemory is right, but its message does not name {name} "
                f"({' and '.join(map(str, sizes))}): name every term, in bytes, MiB or GiB"
            )
    return None


def _terms(memory: Memory) -> Iterator[tuple[str, tuple[float, ...]]]:
    """What the message must name; zero terms may be left out."""
    for name in ("total", "used", "peak", "current", "block_bytes", "reserve"):
        if getattr(memory, name):
            yield name, (getattr(memory, name),)
    yield "utilization", (memory.utilization,)


class _Number(NamedTuple):
    value: float
    step: float  # of its last digit


def _numbers(text: str) -> list[_Number]:
    """The numbers in a message; 1_000 and 1,000 are one number."""
    found = []
    for digits in re.findall(r"\d[\d_,]*(?:\.\d+)?(?:e[+-]?\d+)?", text):
        plain = digits.replace("_", "").replace(",", "")
        fraction = plain.partition(".")[2]
        step = 1.0 if "e" not in plain else float(plain) / 100
        found.append(_Number(float(plain), 10.0 ** -len(fraction) if fraction else step))
    return found


def _names(number: _Number, size: float) -> bool:
    """Whether the number is that size in some unit, rounded to the digits it has."""
    if size <= 1.0:  # the utilization, as a part or in percent
        return abs(number.value - size) < 1e-9 or abs(number.value - 100 * size) < 1e-6
    return any(
        abs(number.value - size / unit) <= min(0.51 * number.step, 0.1 * size / unit)
        for unit in _UNITS
    )


def _diagnosis(memory: Memory, got: int) -> str:
    """What was probably done instead, when a known mistake gives this very number."""
    share, growth = int(memory.total * memory.utilization), memory.peak - memory.current
    used, reserve, peak, current = memory.used, memory.reserve, memory.peak, memory.current
    free = memory.total - used
    guesses = {
        "subtract peak - current; the weights in peak are in `used` already": share
        - used
        - peak
        - reserve,
        "keep peak - current free: that spike comes back in every large prefill": share
        - used
        - reserve,
        "utilization is a share of the whole card, not of what is free": int(
            free * memory.utilization
        )
        - growth
        - reserve,
        "`used` counts other processes, `current` does not": share - current - growth - reserve,
        "`reserve` must stay free, too": share - used - growth,
        "the reserve is taken off, not added": share - used - growth + reserve,
        "`used` is missing": share - growth - reserve,
        "peak is larger than current: take the difference off": share - used + growth - reserve,
        "both peak and current were taken off": share - used - peak - current - reserve,
        "utilization is missing": memory.total - used - growth - reserve,
    }
    for words, budget in guesses.items():
        if budget // memory.block_bytes == got and budget != memory.budget:
            return words
    if -(-memory.budget // memory.block_bytes) == got:
        return "the last block is not a whole one: round down"
    if got == memory.budget:
        return "these are bytes; blocks are wanted"
    return ""


def draw_count(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The card as a bar: what the terms take, and what is left for blocks."""
    from nanoengine.viz.memory import memory_bar

    return memory_bar(**Memory(*args)._asdict(), got=got)
