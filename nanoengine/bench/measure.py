"""Timing one or two engines on the same work, and counting what came out."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from nanoengine.bench import BenchError, metrics
from nanoengine.bench.peers import NanoengineSide, Side
from nanoengine.bench.workload import Workload, same_length_workload, with_fresh_ids

_ALONE_PROMPT = 32  # the probe of one request: prompt and output tokens
_ALONE_TOKENS = 64
_STEPS = 256  # decode steps of the probe of a full batch
_WARM_UP = 8
# Seeds of fresh ids: each measurement has its own, so that no prefix cache has seen its prompts.
_SEED_WARM_UP, _SEED_PREFILL, _SEED_ALONE, _SEED_STEPS, _SEED_RECORD = (
    n * 1000 for n in range(1, 6)
)


@dataclass(slots=True)
class Measurement:
    """What was measured of one engine.

    output_tok_s: of each repeat. batch1_ms, prefill_tok_s: likewise. decode_step_ms: by
    "batch@mean context". output_tokens: of one repeat, checked request by request.
    """

    engine: str
    output_tok_s: list[float] = field(default_factory=list)
    prefill_tok_s: list[float] = field(default_factory=list)
    batch1_ms: list[float] = field(default_factory=list)
    decode_step_ms: dict[str, float] = field(default_factory=dict)
    output_tokens: int = 0

    def to_dict(self) -> dict[str, Any]:
        """For the JSON: all repeats, and their medians."""
        return {
            "engine": self.engine,
            "output_tok_s": _runs(self.output_tok_s),
            "prefill_tok_s": _median(self.prefill_tok_s),
            "prefill_tok_s_runs": self.prefill_tok_s,
            "batch1_ms": _median(self.batch1_ms),
            "batch1_ms_runs": self.batch1_ms,
            "decode_step_ms": self.decode_step_ms,
            "output_tokens": self.output_tokens,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: the workload, how often, and at which batches the decode step is probed.

    decode_steps: pairs (batch, mean context).
    """

    workload: Workload
    vocab_size: int
    temperature: float
    repeats: int
    decode_steps: Sequence[tuple[int, int]] = ()

    def requests(self, repeat: int) -> Workload:
        """The workload itself the first time, then the same lengths with fresh ids."""
        return self.workload if repeat == 0 else self.fresh(repeat)

    def fresh(self, seed: int) -> Workload:
        """The workload's lengths with ids of this seed."""
        return with_fresh_ids(self.workload, seed, self.vocab_size)

    def probe(self, count: int, prompt: int, tokens: int, seed: int) -> Workload:
        """Equal requests with fresh ids."""
        return with_fresh_ids(same_length_workload(count, prompt, tokens), seed, self.vocab_size)


def measure(sides: Sequence[Side], plan: Plan) -> list[Measurement]:
    """Measure engines that are all loaded, taking turns; who begins changes every repeat."""
    found = [Measurement(side.name) for side in sides]
    pairs = list(zip(sides, found, strict=True))
    for side in sides:
        warm_up(side, plan)
    for repeat in range(plan.repeats):
        for side, result in pairs if repeat % 2 == 0 else reversed(pairs):
            one_repeat(side, result, plan, repeat)
    for batch, context in plan.decode_steps:
        for side, result in pairs:
            milliseconds = decode_step_ms(side, plan, batch, context)
            result.decode_step_ms[f"{batch}@{context}"] = milliseconds
    return found


def warm_up(side: Side, plan: Plan) -> None:
    """One run of the whole batch with short outputs: first calls compile, allocate and capture."""
    short = [(prompt, min(count, _WARM_UP)) for prompt, count in plan.fresh(_SEED_WARM_UP)]
    side.run(short, plan.temperature)
    side.run(plan.probe(1, _ALONE_PROMPT, _WARM_UP, _SEED_WARM_UP + 1), plan.temperature)


def one_repeat(side: Side, result: Measurement, plan: Plan, repeat: int) -> None:
    """The workload once, its prefill alone once, and one request alone."""
    requests = plan.requests(repeat)
    seconds = timed_run(side, requests, plan.temperature)
    result.output_tokens = sum(count for _, count in requests)
    result.output_tok_s.append(result.output_tokens / seconds)
    prompts = [(prompt, 1) for prompt, _ in plan.fresh(_SEED_PREFILL + repeat)]
    seconds = timed_run(side, prompts, plan.temperature)
    result.prefill_tok_s.append(sum(len(prompt) for prompt, _ in prompts) / seconds)
    seed = _SEED_ALONE + 2 * repeat
    seconds = _more_tokens(side, plan, (1, _ALONE_PROMPT), _ALONE_TOKENS, seed)
    result.batch1_ms.append(seconds / _ALONE_TOKENS * 1e3)


def decode_step_ms(side: Side, plan: Plan, batch: int, context: int) -> float:
    """Milliseconds of a decode step of `batch` sequences of `context` tokens in the mean.

    The difference of two runs, with 257 and with 1 output tokens, over its 256 steps: at the j-th
    a sequence of p prompt tokens has p + j, in the mean p + 128.5.
    """
    prompt = context - (_STEPS // 2 + 1)
    if prompt < 1:
        raise BenchError(
            f"a mean context of {context} tokens is too short for {_STEPS} decode steps: "
            f"use at least {_STEPS // 2 + 2}"
        )
    return _more_tokens(side, plan, (batch, prompt), _STEPS, _SEED_STEPS + context) / _STEPS * 1e3


def _more_tokens(side: Side, plan: Plan, size: tuple[int, int], steps: int, seed: int) -> float:
    """Seconds of `steps` decode steps alone: a run with 1 + steps tokens minus one with 1."""
    whole = timed_run(side, plan.probe(*size, 1 + steps, seed), plan.temperature)
    first = timed_run(side, plan.probe(*size, 1, seed + 1), plan.temperature)
    return whole - first


def timed_run(side: Side, requests: Workload, temperature: float) -> float:
    """Seconds of one run. Raises BenchError when any request got another number of tokens."""
    _wait()
    start = time.perf_counter()
    outputs = side.run(requests, temperature)
    _wait()
    seconds = time.perf_counter() - start
    for index, (tokens, (_, count)) in enumerate(zip(outputs, requests, strict=True)):
        if len(tokens) != count:
            raise BenchError(
                f"{side.name} gave request {index} {len(tokens)} tokens instead of {count}: "
                "its rate would count tokens that do not exist; raise max_model_len or the KV pool"
            )
    return seconds


def breakdown(side: NanoengineSide, plan: Plan) -> dict[str, float]:
    """Rates and waiting times of one more run, from the records of its steps."""
    with metrics.recorded_events(side.llm) as events:
        start = time.perf_counter()
        side.run(plan.fresh(_SEED_RECORD), plan.temperature)
    rates, waits = metrics.throughput(events), metrics.latency(events, start)
    milliseconds = [seconds * 1e3 for seconds in waits.time_to_first_token]
    between = [seconds * 1e3 for seconds in waits.time_per_output_token]
    return {
        **rates._asdict(),
        "ttft_ms_median": metrics.percentile(milliseconds, 50),
        "ttft_ms_p99": metrics.percentile(milliseconds, 99),
        "tpot_ms_median": metrics.percentile(between, 50),
        "tpot_ms_p99": metrics.percentile(between, 99),
    }


def _runs(values: list[float]) -> dict[str, Any]:
    return {"runs": values, "median": _median(values)}


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _wait() -> None:
    # not `is_available`: a grader's forked child, whose parent uses the GPU, must leave it alone
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
