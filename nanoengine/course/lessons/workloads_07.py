"""Lesson 07's contract for the benchmark's requests: draw for draw."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, plain, show, wrong_kind

RANDOM_CASES = 40
_LARGEST_ID = 10000
_MANY = 100  # requests of which only totals are compared
Requests = list[list[Any]]
Options = dict[str, Any]


class Draw(NamedTuple):
    """How a workload is drawn. The defaults are right; each other value is a known mistake."""

    order: str = "prompts first"
    top: int = 0  # this much is taken off the largest length
    vocabulary: str = "cut"
    two_generators: bool = False
    seed: int | None = None  # instead of the one that was asked for


_MISTAKES = (
    (Draw(order="in turn"), "you draw each output length beside its prompt; prompts come first"),
    (Draw(order="outputs first"), "you draw the output lengths before the prompts"),
    (Draw(order="lengths first"), "you draw all lengths before any ids; draw a prompt's length "
     "just before its ids"),
    (Draw(vocabulary="drawn"), "you draw ids below vocab_size; draw from 0 to 10000, then cut"),
    (Draw(vocabulary="uncut"), "the ids are not cut to the vocabulary: id % vocab_size"),
    (Draw(vocabulary="clipped"), "cut ids with id % vocab_size; min(...) makes many of them equal"),
    (Draw(top=1), "the largest length can be drawn, too: randint includes it, randrange does not"),
    (Draw(two_generators=True), "one generator draws everything; do not start it again for the "
     "output lengths"),
    (Draw(seed=0), "the seed is not used: the same requests come for every seed"),
)  # fmt: skip


def workload_cases() -> list[Case]:
    """Small ones, one option at a time; the article's own; then random ones."""
    hand: list[tuple[str, Options]] = [
        ("lengths and ids", {"num_requests": 3, "min_len": 2, "max_len": 4}),
        ("one length", {"seed": 1, "num_requests": 2, "min_len": 3, "max_len": 3}),
        ("another seed", {"seed": 7, "num_requests": 4, "min_len": 1, "max_len": 6}),
        ("a small vocabulary", {"num_requests": 3, "min_len": 3, "max_len": 5, "vocab_size": 97}),
        ("a vocabulary of one", {"num_requests": 2, "min_len": 1, "max_len": 3, "vocab_size": 1}),
        ("a large vocabulary", {"num_requests": 2, "min_len": 1, "max_len": 3,
                                "vocab_size": 151936}),
        ("outputs of their own", {"seed": 2, "num_requests": 4, "min_len": 1, "max_len": 3,
                                  "min_output": 20, "max_output": 40}),
        ("only the shortest output", {"seed": 3, "num_requests": 4, "min_len": 1, "max_len": 9,
                                      "min_output": 5}),
        ("only the longest output", {"seed": 3, "num_requests": 4, "min_len": 2, "max_len": 3,
                                     "max_output": 12}),
        ("one request", {"seed": 4, "num_requests": 1, "min_len": 5, "max_len": 8}),
        ("no requests", {"num_requests": 0, "min_len": 2, "max_len": 4}),
        ("the article's workload", {}),
    ]  # fmt: skip
    rng = random.Random(701)
    for _ in range(RANDOM_CASES):
        low, first = rng.randint(1, 9), rng.randint(1, 9)
        options = {
            "seed": rng.randint(0, 999),
            "num_requests": rng.randint(1, 6),
            "min_len": low,
            "max_len": low + rng.randint(0, 9),
            "vocab_size": rng.choice((7, 97, 4096, 32000)),
            "min_output": first,
            "max_output": first + rng.randint(0, 9),
        }
        hand.append(("random workloads", options))
    return [Case(check, _situation(check, options), (options,)) for check, options in hand]


def _situation(check: str, options: Options) -> str:
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{check} (make_workload({given}))"


def observe_workload(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """{"work": the requests, or their totals, "disturbed": was the global generator used?}."""
    state = random.getstate()
    try:
        work = plain(function(**args[0]))
        disturbed = random.getstate() != state
    finally:
        random.setstate(state)
    return {"work": _totals(work), "disturbed": disturbed}


def _totals(work: Any) -> Any:
    """Three totals in the place of very many requests."""
    if not isinstance(work, list) or len(work) <= _MANY or any(map(malformed, work)):
        return work
    prompts = sum(len(prompt) for prompt, _ in work)
    return {
        "requests": len(work),
        "prompt tokens": prompts,
        "output tokens": sum(n for _, n in work),
    }


def malformed(request: Any) -> bool:
    """Whether it is no pair of token ids and a number."""
    shape = isinstance(request, list) and len(request) == 2 and isinstance(request[0], list)
    return not shape or type(request[1]) is not int


def compare_workload(case: Case, expected: Any, got: Any) -> Difference | None:
    """The same requests; a disturbed global generator is a remark."""
    wanted, given = expected["work"], got["work"]
    if wanted != given:
        return _difference(case.args[0], wanted, given)
    if got["disturbed"]:
        text = "random.seed(...) changes Python's one global generator; use random.Random(seed)"
        return Difference(text, binding=False)
    return None


def _difference(options: Options, wanted: Any, given: Any) -> Difference:
    if isinstance(wanted, dict) and isinstance(given, dict):
        name = next(n for n in wanted if wanted[n] != given.get(n))
        return Difference(f"expected {wanted[name]} {name}, you drew {given.get(name)}")
    count = wanted["requests"] if isinstance(wanted, dict) else len(wanted)
    wrong = wrong_kind(given, f"{count} requests")
    if wrong:
        return wrong
    if isinstance(wanted, dict) or len(given) != count:
        return Difference(f"expected {count} requests, you gave {len(given)}")
    index = next(i for i in range(count) if wanted[i] != given[i])
    if malformed(given[index]):
        return Difference(
            f"request {index} should be (token ids, max_tokens), you gave {show(given[index])}"
        )
    hint = _known_mistake(options, given) or "one randint of random.Random(seed) a number, in order"
    return Difference(f"{_first_place(index, wanted[index], given[index])}: {hint}")


def _first_place(index: int, wanted: list[Any], given: list[Any]) -> str:
    (ids, count), (mine, my_count) = wanted, given
    if len(ids) != len(mine):
        return f"prompt {index} should have {len(ids)} tokens, yours has {len(mine)}"
    for place, (right, token) in enumerate(zip(ids, mine, strict=True)):
        if right != token:
            return f"token {place} of prompt {index} should be {right}, you gave {show(token)}"
    return f"max_tokens of request {index} should be {count}, you gave {my_count}"


def _known_mistake(options: Options, given: Requests) -> str:
    """The known mistake that draws these very requests, in words."""
    for draw, words in _MISTAKES:
        if _draws(given, draw, options):
            return words
    for names in (("min_output",), ("max_output",), ("min_output", "max_output")):
        rest = {name: value for name, value in options.items() if name not in names}
        if rest != options and _draws(given, Draw(), rest):
            return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not used"
    return ""


def _draws(given: Requests, draw: Draw, options: Options) -> bool:
    """Whether these are the requests; an empty range draws none."""
    try:
        return _drawn(draw, **options) == given
    except ValueError:
        return False


def _drawn(
    how: Draw,
    seed: int = 0,
    num_requests: int = 256,
    min_len: int = 100,
    max_len: int = 1024,
    vocab_size: int = _LARGEST_ID + 1,
    min_output: int | None = None,
    max_output: int | None = None,
) -> Requests:
    """The workload with one mistake in it."""
    number = seed if how.seed is None else how.seed
    rng = random.Random(number)
    low = min_len if min_output is None else min_output
    high = (max_len if max_output is None else max_output) - how.top
    largest = vocab_size - 1 if how.vocabulary == "drawn" else _LARGEST_ID

    def length() -> int:
        return rng.randint(min_len, max_len - how.top)

    def ids(count: int) -> list[int]:
        drawn = [rng.randint(0, largest) for _ in range(count)]
        if how.vocabulary == "clipped":
            return [min(token, vocab_size - 1) for token in drawn]
        return drawn if how.vocabulary == "uncut" else [token % vocab_size for token in drawn]

    if how.order == "in turn":
        return [[ids(length()), rng.randint(low, high)] for _ in range(num_requests)]
    outputs = []
    if how.order == "outputs first":
        outputs = [rng.randint(low, high) for _ in range(num_requests)]
    if how.order == "lengths first":
        lengths = [length() for _ in range(num_requests)]
        prompts = [ids(count) for count in lengths]
    else:
        prompts = [ids(length()) for _ in range(num_requests)]
    last = random.Random(number) if how.two_generators else rng
    outputs = outputs or [last.randint(low, high) for _ in range(num_requests)]
    return [[prompt, count] for prompt, count in zip(prompts, outputs, strict=True)]
