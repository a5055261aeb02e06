"""Lesson 07's questions: what the article's table says, and the rates and floors behind it."""

import random
from typing import Any

from nanoengine.course.lessons.claims_07 import CLAIMS
from nanoengine.course.lessons.floors_07 import H200_COPY, QWEN3_KV, QWEN3_WEIGHTS
from nanoengine.course.lessons.rates_07 import decode, prefill, rate_arguments
from nanoengine.course.quiz import ChoiceQuestion, Option, ValueQuestion

# the article's table, nano-vllm's line
REQUESTS, PROMPT_TOKENS, OUTPUT_TOKENS, SECONDS = 256, 142_827, 133_966, 93.41
_TABLE = "section 1, The article's table"


def _draw_prefill(rng: random.Random) -> dict[str, Any]:
    return {"prefill": rng.randint(3, 15)}


def _rate_text(drawn: dict[str, Any]) -> str:
    return (
        f"nano-vllm in the table: {OUTPUT_TOKENS:,} output tokens in {SECONDS} s. Suppose "
        f"{drawn['prefill']} s of it were prefill runs, which also gave each of the {REQUESTS} "
        "requests its first token, and the rest were decode runs. How many tokens a second did "
        "decode give? Round to a whole number."
    )


def _rate_answer(drawn: dict[str, Any]) -> int:
    from nanoengine.bench.metrics import throughput

    first = ["request"] * REQUESTS
    rest = ["request"] * (OUTPUT_TOKENS - REQUESTS)
    seconds = float(drawn["prefill"])
    runs = [prefill(0.0, seconds, PROMPT_TOKENS, *first), decode(seconds, SECONDS, *rest)]
    return round(throughput(*rate_arguments((runs,))).decode_tok_s)


def _why_rate(drawn: dict[str, Any], given: Any) -> str:
    left = SECONDS - drawn["prefill"]
    if not isinstance(given, int | float):
        return "give a number of tokens a second."
    if given in (1434, 1434.17, 1434.13):
        return "this is the table's rate; its seconds include the prefill."
    if round(given) == round(OUTPUT_TOKENS / left):
        return f"the first token of each of the {REQUESTS} requests came from a prefill run."
    if round(given) == round(PROMPT_TOKENS / drawn["prefill"]):
        return "this is the prefill rate."
    if round(given) == _rate_answer(drawn):
        return "right, but round to a whole number."
    return "the tokens of decode runs, over the seconds of decode runs."


def _draw_step(rng: random.Random) -> dict[str, Any]:
    return {"batch": rng.choice((8, 16, 32, 64, 128, 256)), "context": 50 * rng.randint(4, 40)}


def _step_text(drawn: dict[str, Any]) -> str:
    return (
        f"Qwen3-0.6B in bfloat16 has {QWEN3_WEIGHTS:,} bytes of weights and leaves {QWEN3_KV:,} "
        f"bytes of K and V a token. The memory of an H200 delivers {H200_COPY / 1e9:,.0f} GB a "
        f"second (10^9 bytes). How many microseconds does a decode step of {drawn['batch']} "
        f"sequences take at least, each with context_len {drawn['context']}? Round to a whole "
        "number."
    )


def _step_seconds(batch: int, context: int, weights: int = QWEN3_WEIGHTS) -> float:
    from nanoengine.bench.roofline import floor_seconds

    return floor_seconds([(context - 1, 2)] * batch, weights, QWEN3_KV, H200_COPY)


def _step_answer(drawn: dict[str, Any]) -> int:
    return round(1e6 * _step_seconds(drawn["batch"], drawn["context"]))


def _why_step(drawn: dict[str, Any], given: Any) -> str:
    if not isinstance(given, int | float):
        return "give a number of microseconds."
    batch, context, right = drawn["batch"], drawn["context"], _step_answer(drawn)
    if round(given) == right:
        return "right, but round to a whole number."
    if round(given) == round(1e6 * _step_seconds(batch, context, 0)):
        return "the weights are missing: every step reads all of them."
    if round(given) == round(1e6 * _step_seconds(1, context)):
        return "this is a step of one sequence; each of them has K and V of its own."
    if round(given) == round(1e6 * _step_seconds(0, context)) or given * H200_COPY == QWEN3_WEIGHTS:
        return "these are the weights alone; each sequence reads its K and V, too."
    if round(given) == round(1e6 * batch * _step_seconds(1, context)):
        return "the weights are read once a step, however many sequences share it."
    if abs(given * 1000 - right) < 1000 or abs(given * 1e6 - right) < 1:
        return "right size, but the question asks for microseconds."
    return "(weights + batch x context x bytes a token) over the bytes a second."


QUESTIONS = (
    ChoiceQuestion(
        id="07.q.conclude",
        text="The table: 1434 against 1362 output tok/s, 5 % more. What may you conclude?",
        options=(
            Option(
                "On that laptop, with that vLLM, offline batches of this small model ran about "
                "equally fast.",
                "one GPU, one small model, all requests at once; that is what was measured.",
                right=True,
            ),
            Option(
                "nano-vllm is faster than vLLM.",
                "than one version of it, on one GPU, once; section 8 shows another GPU.",
            ),
            Option(
                "nano-vllm decodes 5 % faster.",
                "the seconds include the prefill, so this is no decode rate.",
            ),
            Option(
                "With nano-vllm users wait 5 % less for an answer.",
                "all requests came at once and nobody's waiting was measured: it was a batch job.",
            ),
        ),
        where=_TABLE,
    ),
    ChoiceQuestion(
        id="07.q.missing",
        text="You want to repeat the table's comparison. What do neither the table nor its "
        "benchmark script tell you?",
        options=(
            Option(
                "Which version of vLLM ran.",
                "asked later, the author said 0.8.5.post1; a rate needs its version beside it.",
                right=True,
            ),
            Option("The requests.", "the script draws them with seed 0: everybody gets the same."),
            Option(
                "How many tokens were generated.",
                "133,966 by both: the lengths are drawn and end-of-text is ignored.",
            ),
            Option("The hardware.", "an RTX 4070 Laptop with 8 GB, it says."),
        ),
        where=_TABLE,
    ),
    ValueQuestion(
        id="07.q.decode_rate",
        draw=_draw_prefill,
        text=_rate_text,
        answer=_rate_answer,
        explain=_why_rate,
        where="section 3, Three rates",
    ),
    ChoiceQuestion(
        id="07.q.batch",
        text="From batch 1 to batch 32, decode tokens a second go up several times. What does a "
        "single user notice?",
        options=(
            Option(
                "Each token comes later: a step of 32 takes longer than a step of 1.",
                "throughput is the sum over all users; time per output token is one user's.",
                right=True,
            ),
            Option(
                "Tokens come several times as fast.",
                "the rate is the sum over 32 users; divide it by 32 and look again.",
            ),
            Option(
                "Nothing: a batch costs no time.",
                "look at the measured step times: they grow with the batch, if slowly.",
            ),
            Option(
                "The first token comes sooner.",
                "it comes later: the prompts of all 32 are computed before it.",
            ),
        ),
        where="section 4, Waiting",
    ),
    ChoiceQuestion(
        id="07.q.same_ids",
        text="Somebody repeats a benchmark with the very same token ids, and reports the fastest "
        "repeat. What is wrong with the later repeats?",
        options=(
            Option(
                "The prefix cache holds the prompts' K and V: most of the prefill is skipped.",
                "it is another, smaller job under the same name; draw fresh ids for each repeat.",
                right=True,
            ),
            Option(
                "They are warm, and only a cold run is honest.",
                "warm runs are what users get all day; a warm-up before the clock starts is right.",
            ),
            Option(
                "The sampler gives shorter outputs the second time.",
                "output lengths are fixed by the workload, and the benchmark counts them.",
            ),
            Option(
                "Nothing: a seed makes all repeats equal.",
                "equal requests, yes; but the engine remembers them.",
            ),
        ),
        where="section 5, Once is never",
    ),
    ValueQuestion(
        id="07.q.floor_step",
        draw=_draw_step,
        text=_step_text,
        answer=_step_answer,
        explain=_why_step,
        where="section 6, The floor",
    ),
    *CLAIMS,
)
