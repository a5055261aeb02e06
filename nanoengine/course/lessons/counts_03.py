"""Lesson 03's contract for the number of blocks, from invented readings of several cards."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from nanoengine.course.lessons.blocks_03 import RANDOM_CASES, Args, not_whole
from nanoengine.course.lessons.terms import missing_term
from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, plain, show

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture

GIB, MIB = 1 << 30, 1 << 20
_BLOCK = 28 * MIB  # Qwen3-0.6B's
_MESSAGE_CHARS = 600


class Memory(NamedTuple):
    """Arguments of num_kvcache_blocks, in its order; all but `utilization` in bytes."""

    total: int
    used: int
    peak: int
    current: int
    block_bytes: int
    utilization: float
    reserve: int = 0

    @property
    def share(self) -> int:
        """Bytes of the card that the engine may fill."""
        return int(self.total * self.utilization)

    @property
    def growth(self) -> int:
        """Bytes that activations took beyond what is allocated now."""
        return self.peak - self.current

    @property
    def budget(self) -> int:
        """Bytes left for blocks; may be negative."""
        return self.share - self.used - self.growth - self.reserve


def count_cases() -> list[Case]:
    """Cards of several sizes, cards too small, then random small numbers."""
    hand = [
        ("an 8 GiB card", Memory(8 * GIB, 2 * GIB, 1800 * MIB, 1300 * MIB, _BLOCK, 0.9)),
        ("no activations", Memory(8 * GIB, 2 * GIB, 1300 * MIB, 1300 * MIB, _BLOCK, 0.9)),
        ("a large peak", Memory(24 * GIB, 3 * GIB, 9500 * MIB, 1400 * MIB, _BLOCK, 0.9)),
        ("half of a card", Memory(24 * GIB, 3 * GIB, 2900 * MIB, 1400 * MIB, _BLOCK, 0.5)),
        ("all of a card", Memory(24 * GIB, 3 * GIB, 2900 * MIB, 1400 * MIB, _BLOCK, 1.0)),
        ("other processes", Memory(80 * GIB, 31 * GIB, 3100 * MIB, 1210 * MIB, _BLOCK, 0.9)),
        ("a large card", Memory(140 * GIB, 2 * GIB, 1700 * MIB, 1180 * MIB, _BLOCK, 0.92)),
        ("a reserve", Memory(16 * GIB, 2 * GIB, 1900 * MIB, 1250 * MIB, _BLOCK, 0.9, GIB)),
        ("exactly one block", Memory(1000, 650, 170, 60, 140, 1.0, 100)),
        ("one byte short", Memory(1000, 651, 173, 63, 140, 1.0, 100)),
        ("too small", Memory(8 * GIB, 6 * GIB, 1810 * MIB, 590 * MIB, _BLOCK, 0.9, 150 * MIB)),
        ("others fill it", Memory(24 * GIB, 23 * GIB, 2930 * MIB, 1310 * MIB, _BLOCK, 0.85)),
    ]
    rng = random.Random(302)
    for _ in range(RANDOM_CASES):
        current = rng.randint(0, 900)
        used, peak = current + rng.randint(0, 700), current + rng.randint(0, 500)
        sizes = (rng.randint(1500, 5000), used, peak, current, rng.randint(7, 90))
        memory = Memory(*sizes, rng.randint(50, 100) / 100, rng.randint(1, 200))
        hand.append(("random readings", memory))
    return [Case(check, _situation(check, memory), _arguments(memory)) for check, memory in hand]


def _arguments(memory: Memory) -> Args:
    """Without the reserve when there is none: that is how the default is checked."""
    return tuple(memory) if memory.reserve else tuple(memory)[:-1]


def _situation(check: str, memory: Memory) -> str:
    sizes = {
        "total": memory.total,
        "used": memory.used,
        "peak": memory.peak,
        "current": memory.current,
        "block": memory.block_bytes,
        "reserve": memory.reserve,
    }
    unit, name = (MIB, "MiB") if all(s % MIB == 0 for s in sizes.values()) else (1, "bytes")
    shown = ", ".join(f"{term} {size // unit}" for term, size in sizes.items() if size)
    return f"{check} (in {name}: {shown}; utilization {memory.utilization})"


def count_or_refusal(function: Callable[..., Any], args: Args) -> Any:
    """The count, or {"raised": type, "message": text} of an error that says "no room"."""
    from nanoengine.errors import NotEnoughMemory

    try:
        return plain(function(*args))
    except (NotEnoughMemory, AssertionError) as error:
        return {"raised": type(error).__name__, "message": str(error)[:_MESSAGE_CHARS]}


def compare_count(case: Case, expected: Any, got: Any) -> Difference | None:
    """The same count, or a refusal that names every term."""
    memory = Memory(*case.args)
    refused = got.get("raised") if isinstance(got, dict) else None
    if isinstance(expected, dict):
        return _refusal(memory, got, refused)
    left = f"{memory.budget} bytes are left, a block takes {memory.block_bytes}"
    if refused:
        return Difference(f"expected {expected}, you raised {refused}; but {left}")
    wrong = not_whole(expected, got, "blocks")
    if wrong or expected == got:
        return wrong
    hint = _diagnosis(memory, got)
    return Difference(f"expected {expected} blocks, you gave {got}{hint and f': {hint}'}")


def _refusal(memory: Memory, got: Any, refused: str | None) -> Difference | None:
    if refused is None:
        return Difference(f"not one block fits: expected NotEnoughMemory, you gave {show(got)}")
    if refused != "NotEnoughMemory":
        return Difference(
            f"not one block fits: expected NotEnoughMemory, you raised {refused}; whoever starts "
            "the engine needs to read the numbers"
        )
    missing = None if memory.total < GIB else _untold(got["message"], memory)
    if missing is None:
        return None
    return Difference(
        f"NotEnoughMemory is right, but its message does not tell `{missing}`, here "
        f"{getattr(memory, missing)}: name every term"
    )


def _untold(message: str, memory: Memory) -> str | None:
    """The first term that a message does not tell; peak - current may stand for the two."""
    terms = memory._asdict()
    if missing_term(message, {"growth": memory.growth}) is None:
        del terms["peak"], terms["current"]
    return missing_term(message, terms)


def _diagnosis(memory: Memory, got: int) -> str:
    """The known mistake that gives this very number, in words."""
    share, used, growth, reserve = memory.share, memory.used, memory.growth, memory.reserve
    peak, current = memory.peak, memory.current
    free_share = int((memory.total - used) * memory.utilization)
    guesses = (
        (share - used - peak - reserve, "of the peak only peak - current is still to come"),
        (share - used - reserve, "the spike peak - current comes back: keep it free"),
        (free_share - growth - reserve, "utilization is a part of the whole card, not of the rest"),
        (share - current - growth - reserve, "other processes are in `used`, not in `current`"),
        (share - peak - reserve, "what others use and the CUDA context are only in `used`"),
        (share - used - growth, "`reserve` must stay free, too"),
        (share - used - growth + reserve, "the reserve is taken off, not added"),
        (share - growth - reserve, "what is used already is missing"),
        (share - used + growth - reserve, "take peak - current off; do not add it"),
        (share - used - peak - current - reserve, "`used` holds what is allocated now already"),
        (memory.total - used - growth - reserve, "the utilization is missing"),
    )
    for budget, words in guesses:
        if budget // memory.block_bytes == got:
            return words
    if got == memory.budget // memory.block_bytes + 1:
        return "the last block does not fit whole: round down"
    return "these are bytes, not blocks" if got == memory.budget else ""


def draw_count(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The card as a bar: what the terms take, and what is left for blocks."""
    from nanoengine.viz.memory import memory_bar

    given = got if type(got) is int else None
    return memory_bar(Memory(*args)._asdict(), got=given)
