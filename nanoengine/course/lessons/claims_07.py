"""Lesson 07's three false claims: every number in them is true, recorded on an H200.

A test looks the numbers up in figures/data. What would be fair is computed from other numbers,
drawn for each student.
"""

import random
import statistics
from typing import Any

from nanoengine.course.quiz import ChoiceQuestion, Option, ValueQuestion

_WHERE = "section 9, Three false claims"
_TOKENS = 133_966


def percent_above(high: float, low: float) -> int:
    """By how many percent `high` is above `low`, rounded.

    >>> percent_above(112.0, 100.0)
    12
    """
    return round(100 * (high / low - 1))


def _draw_runs(rng: random.Random) -> dict[str, Any]:
    """Three repeats of two engines, the first one cold; each usual mistake gives another number."""
    while True:
        rates = {}
        for name, base in (("A", rng.randint(180, 210)), ("B", rng.randint(215, 250))):
            warm = [100 * base + rng.randint(-300, 300) for _ in range(2)]
            rates[name] = [rng.randint(60, 85) * base, *warm]
        drawn = {"A": rates["A"], "B": rates["B"]}
        if len(set(_readings(drawn).values())) == len(_readings(drawn)):
            return drawn


def _readings(drawn: dict[str, Any]) -> dict[str, int]:
    """Percent that B is above A, by several ways of reading the repeats."""
    a, b = drawn["A"], drawn["B"]
    return {
        "median": percent_above(statistics.median(b), statistics.median(a)),
        "mean": percent_above(statistics.mean(b), statistics.mean(a)),
        "first": percent_above(b[0], a[0]),
        "warm": percent_above(statistics.median(b[1:]), statistics.median(a[1:])),
        "best": percent_above(max(b), max(a)),
        "best against first": percent_above(max(b), a[0]),
        "share": round(100 * (1 - statistics.median(a) / statistics.median(b))),
    }


_WHY_RUNS = {
    "mean": "a mean lets the one cold run pull it down; take the medians.",
    "first": "these are the cold runs.",
    "warm": "the cold runs are left out here; the median of all three hardly notices them.",
    "best": "these are the best runs; one lucky run decides. Take the medians.",
    "best against first": "the best of one against the first of the other: claim A's very trick.",
    "share": "this is how far A is below B; asked is how far B is above A.",
}


def _runs_text(drawn: dict[str, Any]) -> str:
    return (
        f"Engine A's three repeats: {drawn['A']} output tok/s. Engine B's: {drawn['B']}. Each "
        "one's first repeat met kernels that had to be compiled. By how many percent is the "
        "median of B's three above the median of A's? Round to a whole percent."
    )


def _why_runs(drawn: dict[str, Any], given: Any) -> str:
    readings = _readings(drawn)
    return next((_WHY_RUNS[n] for n in _WHY_RUNS if readings[n] == given), "100 x (B / A - 1).")


def _draw_timer(rng: random.Random) -> dict[str, Any]:
    return {
        "all": rng.randint(210, 270) / 10,
        "setup": rng.randint(90, 130) / 10,
        "other": rng.randint(60, 75) / 10,
    }


def _timer_text(drawn: dict[str, Any]) -> str:
    return (
        f"Engine A put out {_TOKENS:,} tokens; its timer shows {drawn['all']} s, of which "
        f"{drawn['setup']} s were set-up. Engine B did its set-up before the clock started and "
        f"needed {drawn['other']} s for the same tokens. Serving alone, by how many percent is B's "
        "rate above A's? Round to a whole percent."
    )


def _timer_answer(drawn: dict[str, Any]) -> int:
    serving = drawn["all"] - drawn["setup"]
    return percent_above(_TOKENS / drawn["other"], _TOKENS / serving)


def _why_timer(drawn: dict[str, Any], given: Any) -> str:
    if given == percent_above(drawn["all"], drawn["other"]):
        return "A's set-up is still in its time, and B's is not."
    if given == round(100 * (drawn["all"] - drawn["setup"]) / drawn["other"]):
        return "this is B's rate in percent of A's; asked is how far it is above."
    if given == round(100 * (1 - drawn["other"] / (drawn["all"] - drawn["setup"]))):
        return "this is how far A is below B; asked is how far B is above A."
    return "take the set-up off A's time, then compare tokens over seconds."


CLAIMS = (
    ChoiceQuestion(
        id="07.q.claim_a",
        text='Claim A: "nano-vllm is 26 % faster than mini-sglang: 19,519 against 15,449 output '
        'tok/s, the same requests on the same card." What is wrong?',
        options=(
            Option(
                "It compares nano-vllm's best repeat with mini-sglang's first.",
                "the first one compiled kernels; by the medians mini-sglang is 12 % ahead.",
                right=True,
            ),
            Option(
                "The two numbers are different quantities.",
                "both are output tokens over the whole job's seconds.",
            ),
            Option(
                "The requests differ between the engines.",
                "seed and lengths are the same, and outputs are counted.",
            ),
            Option(
                "26 % is computed wrongly.",
                "19,519 / 15,449 is 1.26: the arithmetic is right, the choice of runs is not.",
            ),
        ),
        where=_WHERE,
    ),
    ChoiceQuestion(
        id="07.q.claim_b",
        text='Claim B: "nano-vllm reaches 52,585 tok/s with 256 sequences, vLLM only 23,135." '
        "What is wrong?",
        options=(
            Option(
                "One is a decode rate at short contexts, the other a whole job with prefill.",
                "in the same decode probe vLLM gave 48,982; over the whole job it was ahead.",
                right=True,
            ),
            Option(
                "One is a first repeat, the other a best one.",
                "23,135 is a median; and no repeat of the whole job came near 52,585.",
            ),
            Option(
                "vLLM used another attention kernel.",
                "it did, as its users would; that alone makes no comparison false.",
            ),
            Option(
                "Random weights decode faster.",
                "both had the same random weights, and the work is the same for any weights.",
            ),
        ),
        where=_WHERE,
    ),
    ChoiceQuestion(
        id="07.q.claim_c",
        text='Claim C: "nano-vllm serves 3.4 times as fast as the continuous batching of '
        'transformers: 19,295 against 5,668 output tok/s, both medians." What is wrong?',
        options=(
            Option(
                "The clock of transformers also ran through 11 s of set-up in each session.",
                "without it: 11,310, and the factor is 1.7. Set-up counts for both or for neither.",
                right=True,
            ),
            Option(
                "Medians hide the best runs.",
                "that is what they are for; one lucky run shall not decide.",
            ),
            Option(
                "One of them generated fewer tokens.",
                "each put out 133,966 tokens, checked request by request.",
            ),
            Option(
                "Output tokens must not be divided by seconds with prefill in them.",
                "they may, if it is said and done for both: it is the rate of the whole job.",
            ),
        ),
        where=_WHERE,
    ),
    ValueQuestion(
        id="07.q.fair_runs",
        draw=_draw_runs,
        text=_runs_text,
        answer=lambda drawn: _readings(drawn)["median"],
        explain=_why_runs,
        where=_WHERE,
    ),
    ValueQuestion(
        id="07.q.fair_timer",
        draw=_draw_timer,
        text=_timer_text,
        answer=_timer_answer,
        explain=_why_timer,
        where=_WHERE,
    ),
)
