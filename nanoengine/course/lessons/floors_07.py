"""Lesson 07's contract for the floor: round numbers first, then known cards and random ones."""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from nanoengine.course.lessons.rates_07 import close
from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, show

RANDOM_CASES = 60
QWEN3_WEIGHTS, QWEN3_KV = 2 * 596_049_920, 114_688  # Qwen3-0.6B in bfloat16: bytes, bytes a token
H200_COPY, H200_FLOPS = 4.279e12, 708e12  # measured on the card


class Floor(NamedTuple):
    """Arguments of floor_seconds, in its order."""

    lengths: Sequence[Sequence[int]]
    weight_bytes: int
    kv_bytes_per_token: int
    bytes_per_second: float
    prefill_flops: float = 0.0
    flops_per_second: float = 0.0  # 0: not given


def floor_cases() -> list[Case]:
    """Weights alone, K and V alone, both, prefill; then real and random numbers."""
    hand: list[tuple[str, Floor]] = [
        ("one request", Floor([[3, 3]], 100, 10, 145.0)),
        ("weights alone", Floor([[5, 4]], 1000, 0, 1000.0)),
        ("K and V alone", Floor([[2, 5]], 0, 10, 10.0)),
        ("equal requests", Floor([[4, 6], [4, 6], [4, 6]], 500, 10, 100.0)),
        ("requests that end early", Floor([[2, 3], [7, 9], [1, 2]], 1000, 1, 1000.0)),
        ("a single output token", Floor([[9, 1]], 1000, 10, 10.0)),
        ("one of them ends at once", Floor([[9, 1], [3, 4]], 100, 10, 10.0)),
        ("prefill", Floor([[8, 1]], 1000, 10, 10.0, 600.0, 200.0)),
        ("prefill and decode", Floor([[3, 3]], 100, 10, 145.0, 600.0, 200.0)),
        ("no requests", Floor([], 1000, 10, 10.0)),
        ("Qwen3-0.6B on an H200, alone",
         Floor([[128, 257]], QWEN3_WEIGHTS, QWEN3_KV, H200_COPY)),
        ("Qwen3-0.6B on an H200, 256 requests",
         Floor([[512, 257]] * 256, QWEN3_WEIGHTS, QWEN3_KV, H200_COPY, 1.2e14, H200_FLOPS)),
    ]  # fmt: skip
    rng = random.Random(703)
    for _ in range(RANDOM_CASES):
        lengths = [[rng.randint(1, 30), rng.randint(1, 12)] for _ in range(rng.randint(1, 6))]
        floor = Floor(lengths, rng.randint(1, 9999), rng.randint(1, 99), float(rng.randint(1, 999)))
        if rng.random() < 0.5:
            flops = float(rng.randint(1, 9999)), float(rng.randint(1, 999))
            floor = floor._replace(prefill_flops=flops[0], flops_per_second=flops[1])
        hand.append(("random workloads", floor))
    return [Case(check, _situation(check, floor), _arguments(floor)) for check, floor in hand]


def _arguments(floor: Floor) -> tuple[Any, ...]:
    """Without the last two where there is no prefill: that is how their defaults are checked."""
    return tuple(floor) if floor.flops_per_second else tuple(floor)[:-2]


def _situation(check: str, floor: Floor) -> str:
    count = len(floor.lengths)
    lengths = str([tuple(pair) for pair in floor.lengths]) if count <= 3 else f"{count} requests"
    text = f"{check} (lengths {lengths}, {floor.weight_bytes} bytes of weights, "
    text += f"{floor.kv_bytes_per_token} a token, {floor.bytes_per_second:g} bytes/s"
    if floor.flops_per_second:
        text += f", {floor.prefill_flops:g} FLOP at {floor.flops_per_second:g}/s"
    return f"{text})"


def floor_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Lengths as a list of tuples."""
    lengths, *rest = args
    return ([tuple(pair) for pair in lengths], *rest)


def compare_floor(case: Case, expected: Any, got: Any) -> Difference | None:
    """The same seconds, but for rounding."""
    if got is None:
        return Difference(f"expected {expected:g} s, you returned None: is a `return` missing?")
    if close(expected, got):
        return None
    if not isinstance(got, int | float):
        return Difference(f"expected {expected:g} s, you returned {show(got)}")
    hint = _diagnosis(Floor(*case.args), got)
    return Difference(f"expected {expected:g} s, you gave {got:g}: {hint}")


def _diagnosis(floor: Floor, got: float) -> str:
    """The known mistake that gives this very number, in words."""
    if not floor.lengths:
        return "without requests nothing is read"
    outputs = [output for _, output in floor.lengths]
    steps = max(outputs) - 1
    grown = sum(sum(p + j for j in range(1, n)) for p, n in floor.lengths)
    late = sum(sum(p + j for j in range(n - 1)) for p, n in floor.lengths)
    long = sum(sum(p + j for j in range(1, n + 1)) for p, n in floor.lengths)
    flat = sum(p * (n - 1) for p, n in floor.lengths)
    on = sum(sum(p + j for j in range(1, max(outputs))) for p, _ in floor.lengths)
    every = sum(n - 1 for n in outputs)
    guesses = (
        (steps + 1, long, "the prefill gives the first token: one step fewer than output tokens"),
        (steps + 1, grown, "the prefill gives the first token: one step fewer than output tokens"),
        (steps, long, "the prefill gives the first token: K and V are read once less"),
        (steps, late, "a step reads the K and V of its own token, too: p + 1 at the first"),
        (steps, on, "a request that has ended reads no more K and V"),
        (steps, flat, "each step has one token more to read than the one before"),
        (every, grown, "all requests share a step's weights: count the steps of the longest"),
        (min(outputs) - 1, grown, "steps go on until the longest output is done"),
        (outputs[0] - 1, grown, "steps go on until the longest output is done"),
        (every / len(outputs), grown, "steps go on until the longest output is done, not the mean"),
        (1, grown, "every step reads the weights again"),
        (steps, 0, "the K and V are missing"),
        (0, grown, "the weights are missing"),
    )
    flops = floor.prefill_flops / floor.flops_per_second if floor.flops_per_second else 0.0
    for count, positions, words in guesses:
        moved = count * floor.weight_bytes + positions * floor.kv_bytes_per_token
        if close(moved / floor.bytes_per_second + flops, got):
            return words
    moved = steps * floor.weight_bytes + grown * floor.kv_bytes_per_token
    seconds = moved / floor.bytes_per_second
    if close(seconds, got):
        return "the prefill's arithmetic is missing"
    if close(max(seconds, flops), got):
        return "prefill and decode come one after the other: add them"
    if close(moved, got):
        return "these are bytes: divide by bytes_per_second"
    return f"{steps} decode steps read {grown} positions in all"
