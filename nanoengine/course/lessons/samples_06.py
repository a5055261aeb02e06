"""Lesson 06's contract for `sample`: which token a number leads to, and what a wrong one shows."""

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from nanoengine.course.lessons.slips_06 import (
    BORDERS,
    FAR_BORDERS,
    LARGE,
    NARROW,
    ROUNDING,
    Row,
    why_wrong,
)
from nanoengine.course.lessons.tensors import call_with_tensors, not_a_tensor, random_tensor
from nanoengine.course.registry import Case
from nanoengine.course.values import Difference
from nanoengine.layers.sampler import GREEDY_BELOW

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture

Args = tuple[Any, ...]

ALMOST_ONE = 1 - 2**-24  # the largest number that uniform_noise gives
_NAMES = ("logits", "temperatures", "noise")
_ROUNDING = 1e-5  # float32 sums in another order may move a border by this
_PARTS = (0.5, 0.2, 0.3)  # probabilities
_PROBE_ROWS, _DRAWN_TOKENS = 32, 12
_EIGHT = [i / 8 + 0.11 for i in range(8)]
_RANDOM_CASES = 60


def sample_cases() -> list[Case]:
    """Simplest first: one row, then borders, impossible tokens, batches, large vocabularies."""
    cases = [
        _case("greedy", [[1.0, 4.0, 2.0]], [0.0], [0.9]),
        _case("greedy", [[3.0, 7.0, 7.0]], [0.0], [0.99]),
        *(_parts_case((0.2, 0.5, 0.3), noise) for noise in (0.1, 0.8)),
        *(_parts_case(_PARTS, noise) for noise in (0.6, 0.9)),
        _case("temperature", [[2.0, 1.0, 0.0, 1.5]], [0.5], [0.6]),
        _case("temperature", [[2.0, 1.0, 0.0, 1.5]], [3.0], [0.45]),
        *(_case(BORDERS, [[0.0] * 4], [1.0], [quarter / 4]) for quarter in range(4)),
        _case("impossible tokens", [[None, None, 1.0, 2.0]], [1.0], [0.0]),
        _case("impossible tokens", [[1.0, None, 1.0, None]], [1.0], [0.5]),
        _case("impossible tokens", [[1.0, 2.0, None, None]], [0.8], [ALMOST_ONE]),
        _case("batches", [[0.0, 5.0, 1.0], [3.0, 2.0, 1.0]], [0.0, 0.0], [0.4, 0.6]),
        _case("batches", [[0.0, 1.0, 2.0, 1.0]] * 3, [1.0, 0.0, 2.0], [0.05, 0.05, 0.95]),
        _case("batches", [[0.0, 1.0, 0.0]] * 3, [1.0] * 3, [0.9, 0.1, 0.6]),
        _case(LARGE, [[1000.0, 999.0, 998.0]], [1.0], [0.7]),
        _case(LARGE, [[1000.0, 999.0], [-900.0, -901.0]], [1.0] * 2, [0.7, 0.8]),
        *_rounding_cases(),
        _case(NARROW, _seeded(5, 8, 300), [1.0] * 8, _EIGHT, "bfloat16"),
        _case("large vocabulary", _seeded(6, 2, 20_000), [1.0, 0.7], [0.31, 0.93]),
        *(_case(FAR_BORDERS, _equal(8192), [1.0], [part]) for part in (0.5, 0.25, 0.0)),
        _case("large vocabulary", _equal(50_000), [1.0], [ALMOST_ONE]),
    ]  # fmt: skip
    return [*cases, *_random_cases()]


def _parts_case(parts: tuple[float, ...], noise: float) -> Case:
    situation = f"probabilities {list(parts)}, temperature 1, noise {noise}"
    logits = [round(math.log(part), 6) for part in parts]
    return Case("look-up", situation, ([logits], [1.0], [noise], "float32"))


def _seeded(seed: int, rows: int, vocab: int) -> dict[str, int]:
    return {"seed": seed, "rows": rows, "vocab": vocab}


def _equal(vocab: int) -> dict[str, int]:
    return {"rows": 1, "vocab": vocab}


def _case(
    check: str, rows: Any, temperatures: list[float], noise: list[float], dtype: str = "float32"
) -> Case:
    if isinstance(rows, dict):
        shown = f"[{rows['rows']}, {rows['vocab']}] logits"
    else:
        shown = f"logits {str(rows).replace('None', '-inf')}"
    kind = "" if dtype == "float32" else f" {dtype}"
    parts = [f"{shown}{kind}", f"temperatures {temperatures}", f"noise {noise}"]
    if len(temperatures) > 3:
        parts = parts[:1]
    return Case(check, ", ".join(parts), (rows, temperatures, noise, dtype))


def _rounding_cases() -> Iterator[Case]:
    """Probabilities whose float32 sum stays below the largest number: a look-up finds nothing."""
    found = 0
    for seed in range(1000):
        rng = random.Random(seed)
        row: list[float | None] = [round(rng.uniform(-2, 2), 1) for _ in range(5)]
        total = torch.tensor([row]).softmax(-1).cumsum(-1)[0, -1]
        if float(total) <= ALMOST_ONE:
            found += 1
            tail = [None, None] if found == 2 else []
            yield _case(ROUNDING, [row + tail], [1.0], [ALMOST_ONE])
        if found == 2:
            return


def _random_cases() -> Iterator[Case]:
    rng = random.Random(606)
    for _ in range(_RANDOM_CASES):
        count, vocab = rng.randint(1, 4), rng.randint(2, 9)
        rows = [[_logit(rng) for _ in range(vocab)] for _ in range(count)]
        for row in rows:
            row[rng.randrange(vocab)] = 0.5
        temperatures = [rng.choice((0.0, 0.3, 0.7, 1.0, 1.5)) for _ in rows]
        noise = [round(rng.random(), 3) for _ in rows]
        yield _case("random", rows, temperatures, noise)


def _logit(rng: random.Random) -> float | None:
    return None if rng.random() < 0.15 else round(rng.uniform(-3, 3), 1)


def sample_arguments(args: Args) -> Args:
    """Tensors (logits, temperatures, noise) of a case's plain data."""
    rows, temperatures, noise, dtype = args
    if not isinstance(rows, dict):
        logits = torch.tensor([[-torch.inf if x is None else x for x in row] for row in rows])
    elif "seed" in rows:
        logits = random_tensor(rows["seed"], rows["rows"], rows["vocab"])
    else:
        logits = torch.zeros(rows["rows"], rows["vocab"])
    return logits.to(getattr(torch, dtype)), torch.tensor(temperatures), torch.tensor(noise)


def observe_sample(function: Callable[..., Any], args: Args) -> dict[str, Any]:
    """The result, its shape and dtype, a changed argument, and whether it can be repeated."""
    kinds: list[str] = []

    def kept(*arguments: Any) -> Any:
        result = function(*arguments)
        kinds.append(str(getattr(result, "dtype", "")).removeprefix("torch."))
        return result

    seen = call_with_tensors(kept, args)
    warm = bool((args[1] >= GREEDY_BELOW).any())
    return {**seen, "dtype": kinds[0], "repeats": not warm or _repeats(function)}


def _repeats(function: Callable[..., Any]) -> bool:
    """Whether many equally likely tokens come out the same twice, with the same noise."""
    results: list[Any] = []
    with contextlib.suppress(Exception):  # reported by a case that it was made for
        for _ in range(2):
            args = torch.zeros(_PROBE_ROWS, _PROBE_ROWS), torch.ones(_PROBE_ROWS)
            results.append(function(*args, torch.full((_PROBE_ROWS,), 0.5)).tolist())
    return len(results) < 2 or results[0] == results[1]


def compare_sample(case: Case, expected: Any, got: Any) -> Difference | None:
    """A token is right when its number lies between its borders, give or take rounding."""
    wrong = not_a_tensor(expected, got, _NAMES)
    if wrong:
        return wrong
    if got["dtype"] != "int64":
        return Difference(
            f"expected int64 tokens, yours are {got['dtype']}: they go into last_token, which the "
            "next step reads"
        )
    if not got["repeats"]:
        return Difference(
            "called twice with the same noise, it gives two results: take the argument `noise` and "
            "no generator of your own"
        )
    logits, temperatures, noise = sample_arguments(case.args)
    slack = 0.0 if case.check in (BORDERS, FAR_BORDERS) else _ROUNDING
    for row, (wanted, token) in enumerate(zip(expected["result"], got["result"], strict=True)):
        mine = Row(logits[row].double(), float(temperatures[row]), float(noise[row]), row, slack)
        if token != wanted and not mine.allows(token):
            return Difference(
                f"row {row} should give token {wanted}, yours gives {token}: "
                f"{why_wrong(case.check, mine, token, logits, temperatures, noise)}"
            )
    return None


def draw_sample(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The first wrong row's number on its line of probabilities; greedy rows have none."""
    from nanoengine.viz.sampling import number_line

    logits, temperatures, noise = sample_arguments(args)
    for row, (token, mine) in enumerate(zip(expected["result"], got["result"], strict=True)):
        warm = float(temperatures[row]) >= GREEDY_BELOW
        if token != mine and warm and logits.shape[1] <= _DRAWN_TOKENS:
            shares = (logits[row] / temperatures[row]).softmax(-1).tolist()
            labels = [str(index) for index in range(len(shares))]
            return number_line(shares, labels, float(noise[row]), token, got=mine)
    return None
