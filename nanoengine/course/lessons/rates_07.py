"""Lesson 07's contract for the three rates, from invented runs of the model."""

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, call, show

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture

RANDOM_CASES = 60
CLOSE = 1e-9
RATES = ("output_tok_s", "prefill_tok_s", "decode_tok_s")
_SHOWN_RUNS = 3  # a message shows the runs of a case up to this many
Runs = list[list[Any]]


def prefill(start: float, end: float, tokens: int, *ids: str) -> list[Any]:
    """A run of the model over prompt tokens, in plain data."""
    return [True, start, end, tokens, list(ids)]


def decode(start: float, end: float, *ids: str) -> list[Any]:
    """A run of the model over the newest tokens of these requests."""
    return [False, start, end, len(ids), list(ids)]


def rate_cases() -> list[Case]:
    """One thing at a time: a simple job, no first second, chunks, gaps, overlap, nothing."""
    steps = [decode(1 + i / 2, 1.5 + i / 2, "a", "b") for i in range(4)]
    hand: list[tuple[str, Runs]] = [
        ("a simple job", [prefill(0.0, 1.0, 100, "a", "b"), *steps]),
        ("a clock that ran before", [prefill(500.0, 502.0, 60, "a"), decode(502.0, 503.0, "a")]),
        ("a chunk inside a prompt", [prefill(0.0, 1.0, 50), prefill(1.0, 2.0, 10, "a"),
                                     decode(2.0, 4.0, "a")]),
        ("prefill between decode runs", [prefill(0.0, 1.0, 8, "a"), decode(1.0, 2.0, "a"),
                                         prefill(2.0, 4.0, 30, "b"), decode(4.0, 4.5, "a", "b")]),
        ("waiting between runs", [prefill(0.0, 1.0, 8, "a"), decode(3.0, 4.0, "a"),
                                  decode(7.0, 8.0, "a")]),
        ("overlapping runs", [decode(0.0, 1.0, "a"), decode(0.25, 2.0, "a"),
                              decode(1.25, 3.0, "a")]),
        ("prefill and decode overlap", [prefill(0.0, 2.0, 40, "a", "b"), decode(0.5, 3.0, "a", "b"),
                                        prefill(2.5, 5.0, 20, "c"), decode(3.5, 5.5, "a", "c")]),
        ("only prefill", [prefill(2.0, 4.0, 512, "a", "b", "c")]),
        ("only decode", [decode(2.0, 2.5, "a", "b"), decode(2.5, 3.5, "a")]),
        ("a run that took no time", [prefill(1.0, 1.0, 16, "a"), decode(1.0, 1.5, "a")]),
        ("nothing ran", []),
    ]  # fmt: skip
    rng = random.Random(702)
    hand += [("random jobs", _random_job(rng)) for _ in range(RANDOM_CASES)]
    return [Case(check, _situation(check, runs), (runs,)) for check, runs in hand]


def _random_job(rng: random.Random) -> Runs:
    """Runs in order: each is launched after the one before, and ends after it."""
    runs: Runs = []
    start, end = rng.uniform(0, 100), 0.0
    for _ in range(rng.randint(1, 9)):
        ids = [f"r{i}" for i in range(rng.randint(1, 5))]
        start += rng.uniform(0.01, 1.0)
        end = max(start, end) + rng.uniform(0.01, 1.0)
        if rng.random() < 0.4:
            runs.append(prefill(start, end, rng.randint(1, 90), *ids[: rng.randint(0, 3)]))
        else:
            runs.append(decode(start, end, *ids))
    return runs


def _situation(check: str, runs: Runs) -> str:
    if not runs or len(runs) > _SHOWN_RUNS:
        return f"{check} ({len(runs)} runs)"
    shown = (
        f"{f'prefill of {tokens},' if is_prefill else 'decode'} {start:g}-{end:g} s gives "
        f"{len(ids)}"
        for is_prefill, start, end, tokens, ids in runs
    )
    return f"{check} ({', '.join(shown)})"


def rate_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """RunEvents of the plain runs."""
    from nanoengine.bench.metrics import RunEvent

    return (
        [
            RunEvent(is_prefill, start, end, tokens, tuple(ids))
            for is_prefill, start, end, tokens, ids in args[0]
        ],
    )


def observe_rates(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """{"rates": what came back, "named": can it be read by name?}."""
    results: list[Any] = []

    def kept(*given: Any) -> Any:
        results.append(function(*given))
        return results[-1]

    rates = call(kept, args)
    return {"rates": rates, "named": all(hasattr(results[0], name) for name in RATES)}


def compare_rates(case: Case, expected: Any, got: Any) -> Difference | None:
    """Three close numbers, which can be read by name."""
    rates = got["rates"]
    if rates is None:
        return Difference("expected a Throughput, you returned None: is a `return` missing?")
    if not isinstance(rates, list) or len(rates) != len(RATES):
        return Difference(f"expected a Throughput of three rates, you returned {show(rates)}")
    for name, wanted, given in zip(RATES, expected["rates"], rates, strict=True):
        if not close(wanted, given):
            hint = _diagnosis(case.args[0], wanted, given)
            text = f"{name} should be {wanted:g}, you gave {_short(given)}"
            return Difference(f"{text}{hint and f': {hint}'}")
    if not got["named"]:
        return Difference(
            "the numbers are right, but nanoengine bench reads them by name: return Throughput(...)"
        )
    return None


def close(wanted: float, given: Any) -> bool:
    """Equal but for rounding."""
    return (
        isinstance(given, int | float)
        and type(given) is not bool
        and abs(given - wanted) <= CLOSE * max(1.0, abs(wanted))
    )


def _short(given: Any) -> str:
    return f"{given:g}" if isinstance(given, int | float) else show(given)


class _Named(NamedTuple):
    value: float
    words: str


def _diagnosis(runs: Runs, wanted: float, given: Any) -> str:
    """Which tokens over which seconds make this very number."""
    if not isinstance(given, int | float) or not given or not runs:
        return ""
    if given in (round(wanted), round(wanted, 1), round(wanted, 2)):
        return "rounding is for printing"
    for tokens in _numerators(runs):
        for seconds in _denominators(runs):
            if seconds.value and tokens.value and close(tokens.value / seconds.value, given):
                return f"that is {tokens.words} over {seconds.words}"
    return ""


def _numerators(runs: Runs) -> Iterator[_Named]:
    prompt = sum(tokens for is_prefill, _, _, tokens, _ in runs if is_prefill)
    rows = sum(tokens for is_prefill, _, _, tokens, _ in runs if not is_prefill)
    first = sum(len(ids) for is_prefill, _, _, _, ids in runs if is_prefill)
    yield _Named(first + rows, "all new tokens")
    yield _Named(rows, "the new tokens of decode runs alone")
    yield _Named(prompt, "the prompt tokens")
    yield _Named(prompt + rows, "prompt tokens and decode rows together")
    yield _Named(prompt + first + rows, "prompt tokens and new tokens together")
    yield _Named(first, "the new tokens of prefill runs")
    chunks = sum(1 for is_prefill, *_ in runs if is_prefill)
    yield _Named(chunks + rows, "one new token for every prefill run and those of decode runs")


def _denominators(runs: Runs) -> Iterator[_Named]:
    busy, plain = _seconds(runs, once=True), _seconds(runs, once=False)
    yield _Named(runs[-1][2] - runs[0][1], "the seconds of the whole job")
    yield _Named(busy[True], "the seconds in prefill runs")
    yield _Named(busy[False], "the seconds in decode runs")
    yield _Named(plain[True], "prefill seconds of which overlaps count twice")
    yield _Named(plain[False], "decode seconds of which overlaps count twice")
    for is_prefill, kind in ((True, "prefill"), (False, "decode")):
        words = f"{kind} seconds with the waiting before each run in them"
        yield _Named(_with_waiting(runs, is_prefill), words)
    yield _Named(sum(busy.values()), "the seconds in runs, without the waiting between them")
    yield _Named(sum(plain.values()), "the summed seconds of all runs, not the whole job's")
    yield _Named(runs[-1][2], "the clock at the end: take off the start")


def _seconds(runs: Runs, once: bool) -> dict[bool, float]:
    found, before = {True: 0.0, False: 0.0}, runs[0][1]
    for is_prefill, start, end, _, _ in runs:
        found[is_prefill] += max(0.0, end - (max(start, before) if once else start))
        before = max(before, end)
    return found


def _with_waiting(runs: Runs, wanted: bool) -> float:
    """Seconds from the end of the run before to a run's own, summed over the runs of a kind."""
    found, before = 0.0, runs[0][1]
    for is_prefill, _, end, _, _ in runs:
        found += end - before if is_prefill == wanted else 0.0
        before = end
    return found


def draw_rates(args: tuple[Any, ...], expected: Any, got: Any) -> "Picture | None":
    """The runs on a line of time."""
    from nanoengine.viz.bench import run_timeline

    return run_timeline(rate_arguments(args)[0]) if args[0] else None
