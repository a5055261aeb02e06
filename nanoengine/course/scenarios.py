"""Behaviour: small workloads that reach every branch, run through the real engine and watched.

Whoever grades runs them twice: once with the library's functions, once with the student's.
"""

import base64
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from nanoengine.config import EngineConfig
from nanoengine.course import benchmarks, tiny
from nanoengine.engine.engine import LLMEngine
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sampling import SampledTokens
from nanoengine.engine.sequence import Batch
from nanoengine.layers.attention import Attention
from nanoengine.sampling_params import SamplingParams

_MAX_STEPS = 300


class Arrival(NamedTuple):
    """A request: the step before which it arrives, its prompt, and how many tokens it wants.

    temperature, seed, top_k: of its sampling; greedy without them.
    """

    step: int
    prompt: list[int]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    top_k: int = 0

    @property
    def params(self) -> SamplingParams:
        """The same for the engine; only max_tokens ends the request."""
        return SamplingParams(
            temperature=self.temperature,
            seed=self.seed,
            top_k=self.top_k,
            max_tokens=self.max_tokens,
            ignore_eos=True,
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """One workload. situation: how a message calls it. warm_up: run that before the requests.

    needs: "cuda" where it cannot run without a GPU; the grade is then "partial".
    bench: a benchmark is run in the place of requests: the arguments of `nanoengine bench`.
    """

    name: str
    situation: str
    options: dict[str, Any]
    arrivals: tuple[Arrival, ...]
    warm_up: bool = False
    needs: Literal["", "cuda"] = ""
    bench: tuple[str, ...] = ()

    def missing(self) -> str | None:
        """Why it cannot run on this machine, or None."""
        return "no GPU" if self.needs == "cuda" and not torch.cuda.is_available() else None


@dataclass(slots=True)
class Observation:
    """What was seen: tokens and logits by request, and the first wrong write into the KV memory.

    num_blocks: of the KV pool. logits: request -> float32 [tokens, vocab], the row that each token
    was chosen from. calls: of the graded function. report: of a benchmark.
    """

    tokens: dict[str, list[int]] = field(default_factory=dict)
    logits: dict[str, np.ndarray] = field(default_factory=dict)
    wrong_write: str | None = None
    calls: int = 0
    num_blocks: int = 0
    report: dict[str, Any] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """JSON-able; arrays as base64."""
        return {
            "tokens": self.tokens,
            "logits": {k: base64.b64encode(v.tobytes()).decode() for k, v in self.logits.items()},
            "wrong_write": self.wrong_write,
            "calls": self.calls,
            "num_blocks": self.num_blocks,
            "report": self.report,
        }

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> "Observation":
        """The inverse of `to_plain`. Raises ValueError when an array's size is odd."""
        logits = {
            str(k): np.frombuffer(base64.b64decode(v), dtype=np.float32).reshape(-1, tiny.VOCAB)
            for k, v in values["logits"].items()
        }
        tokens = {str(k): [int(t) for t in v] for k, v in values["tokens"].items()}
        calls, num_blocks = int(values["calls"]), int(values["num_blocks"])
        report = dict(values["report"])
        return cls(tokens, logits, values["wrong_write"], calls, num_blocks, report)


def _prompt(seed: int, length: int) -> list[int]:
    return random.Random(seed).sample(range(tiny.VOCAB), length)


_BASE: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "reference",
    "kvcache_block_size": 4,
    "num_kvcache_blocks": 64,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "enforce_eager": True,
}
_SHARED = _prompt(1, 9)
_POOL_BYTES = 13 * 1024 - 1  # 12 blocks of the grading model, and not quite a thirteenth

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "warm-up",
            "warm-up (sequences that own no blocks)",
            {**_BASE, "max_num_batched_tokens": 32, "max_model_len": 16},
            (Arrival(0, _prompt(2, 6), 2),),
            warm_up=True,
        ),
        Scenario(
            "chunks",
            "prompts computed in chunks that end inside a block",
            {**_BASE, "max_num_batched_tokens": 7, "max_num_seqs": 5},
            (
                Arrival(0, _prompt(3, 17), 4),
                Arrival(0, _prompt(4, 1), 6),
                Arrival(0, _prompt(5, 9), 3),
                Arrival(2, _prompt(6, 8), 5),
                Arrival(4, _prompt(7, 12), 2),
            ),
        ),
        Scenario(
            "prefix",
            "a batch of fresh prompts and prompts whose beginning is cached",
            _BASE,
            (
                Arrival(0, [*_SHARED, *_prompt(8, 4)], 6),
                Arrival(2, _prompt(9, 5), 4),
                Arrival(2, [*_SHARED, *_prompt(10, 7)], 5),
                Arrival(2, _SHARED[:8], 5),
                Arrival(4, [*_SHARED, *_prompt(8, 4)], 4),
            ),
        ),
        Scenario(
            "buckets",
            "11 sequences of different lengths, decoded in padded graphs while they end",
            {**_BASE, "enforce_eager": False, "max_num_seqs": 11, "max_model_len": 48},
            tuple(Arrival(0, _prompt(80 + i, 1 + i % 9), 2 + (5 * i) % 11) for i in range(11)),
        ),
        Scenario(
            "small pool",
            "blocks of 8 tokens in a pool so small that sequences are preempted",
            {**_BASE, "kvcache_block_size": 8, "num_kvcache_blocks": 7},
            tuple(Arrival(i // 2, _prompt(40 + i, 7 + 3 * i), 12) for i in range(4)),
        ),
        Scenario(
            "carved pool",
            f"a KV pool carved from {_POOL_BYTES} bytes",
            {**_BASE, "num_kvcache_blocks": None, "cpu_kvcache_bytes": _POOL_BYTES},
            tuple(Arrival(0, _prompt(63 + i, 6 + 5 * i), 9) for i in range(3)),
        ),
        Scenario(
            "benchmark",
            "a benchmark of 5 requests (`nanoengine bench`, one run at a time)",
            {},
            (),
            bench=(
                *("--requests=5", "--input=3-17", "--output=1-9", "--seed=5", "--repeats=1"),
                "--no-overlap",
            ),
        ),
        Scenario(
            "benchmark in chunks",
            "a benchmark whose prompts come in chunks (`nanoengine bench`, 16 tokens a step)",
            {},
            (),
            bench=(
                *("--requests=7", "--input=2-24", "--output=2-6", "--seed=11", "--repeats=1"),
                *("--max-num-batched-tokens=16", "--max-num-seqs=3"),
            ),
        ),
        Scenario(
            "sampled",
            "a batch of greedy and sampled requests, each with its own temperature and seed",
            _BASE,
            (
                Arrival(0, _prompt(90, 6), 8, temperature=1.0, seed=1),
                Arrival(0, _prompt(91, 3), 9),
                Arrival(1, _prompt(92, 9), 7, temperature=0.6, seed=2),
                Arrival(2, _prompt(93, 5), 8, temperature=2.5, seed=3),
                Arrival(3, _prompt(94, 7), 6, temperature=1.5, seed=4, top_k=5),
            ),
        ),
    )
}


def run(scenario: Scenario, folder: Path) -> Observation:
    """Run a workload in an engine built here; returns what was seen.

    Memory that no token has written is NaN, and free blocks come in a shuffled order.
    """
    if scenario.bench:
        return Observation(report=benchmarks.run(scenario.bench, folder))
    seen = Observation()
    rows: dict[str, list[np.ndarray]] = {}

    def on_step(record: StepRecord) -> None:
        assert record.logits is not None
        for row, item in enumerate(record.batch.items):
            if item.emits:
                rows.setdefault(item.seq.request_id, []).append(record.logits[row].numpy())

    engine = LLMEngine(folder, EngineConfig.from_kwargs(**scenario.options), on_step)
    seen.num_blocks = engine.runner.num_kvcache_blocks
    if scenario.warm_up:
        with _unbound_caches(engine):
            engine.runner.warm_up()
    engine.runner.kv_cache.fill_(torch.nan)
    _shuffle_blocks(engine)
    engine.runner.run = _watched(engine, engine.runner.run, seen)  # type: ignore[method-assign]
    outputs = _feed(engine, scenario)
    for name, token_ids in outputs.items():
        seen.tokens[name] = token_ids
        seen.logits[name] = np.stack(rows[name][: len(token_ids)]).astype(np.float32)
    return seen


def _feed(engine: LLMEngine, scenario: Scenario) -> dict[str, list[int]]:
    """Add each request before its step, run to the end; returns the output tokens."""
    waiting = list(enumerate(scenario.arrivals))
    outputs: dict[str, Any] = {}
    for step in range(_MAX_STEPS):
        while waiting and waiting[0][1].step <= step:
            index, arrival = waiting.pop(0)
            name = engine.add_request(arrival.prompt, arrival.params, f"request {index}")
            outputs[name] = engine.output(name)
        if not waiting and not engine.has_unfinished:
            return {name: list(output.token_ids) for name, output in outputs.items()}
        if engine.has_unfinished:
            engine.step()
    raise RuntimeError(f"the engine did not finish its requests within {_MAX_STEPS} steps")


def _shuffle_blocks(engine: LLMEngine) -> None:
    blocks = list(engine.block_manager.free_block_ids)
    random.Random(7).shuffle(blocks)
    blocks.remove(0)
    blocks.insert(1, 0)  # block 0 is in use early: nothing may take 0 for "no block"
    engine.block_manager.free_block_ids = OrderedDict.fromkeys(blocks)


@contextmanager
def _unbound_caches(engine: LLMEngine) -> Iterator[None]:
    """As before the KV cache is carved: a warm-up run has nothing to write to."""
    layers = [m for m in engine.runner.model.modules() if isinstance(m, Attention)]
    bound = [(layer.k_cache, layer.v_cache) for layer in layers]
    for layer in layers:
        layer.k_cache = layer.v_cache = torch.empty(0)
    try:
        yield
    finally:
        for layer, (k_cache, v_cache) in zip(layers, bound, strict=True):
            layer.k_cache, layer.v_cache = k_cache, v_cache


Run = Callable[..., SampledTokens]


def _watched(engine: LLMEngine, run_model: Run, seen: Observation) -> Run:
    """`runner.run`, with the KV memory compared before and after: the write-set check."""
    size = engine.runner.block_size
    memory = engine.runner.kv_cache.view(torch.int32)  # bits: NaN equals NaN

    def watched(batch: Batch, record: StepRecord | None = None) -> SampledTokens:
        own = {
            seq.block_table[p // size] * size + p % size: (seq.request_id, p)
            for seq, start, end, _ in batch.items
            for p in range(start, end)
        }
        # so that a slot shows as written even when it gets the very bits it held before
        engine.runner.kv_cache.flatten(2, 3)[:, :, list(own)] = torch.nan
        before = memory.clone()
        tokens = run_model(batch, record)
        differs = (memory != before).any(dim=-1).any(dim=-1).any(dim=0).any(dim=0)
        changed = set(differs.flatten().nonzero().flatten().tolist())
        if seen.wrong_write is None:
            seen.wrong_write = _wrong_write(own, changed, size)
        return tokens

    return watched


def _wrong_write(own: dict[int, tuple[str, int]], changed: set[int], size: int) -> str | None:
    """The first slot that was written and should not have been, or the other way round."""
    for slot in sorted(changed - own.keys()):
        return (
            f"a step wrote slot {slot} (block {slot // size}, offset {slot % size}), "
            "where none of its tokens belongs"
        )
    for slot in sorted(own.keys() - changed):
        request, position = own[slot]
        return f"position {position} of {request} belongs in slot {slot}, which was not written"
    return None
