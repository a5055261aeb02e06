"""Behaviour: the workloads run through the real engine and watched.

Whoever grades runs them twice: once with the library's functions, once with the student's.
"""

import base64
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nanoengine.config import EngineConfig
from nanoengine.course import benchmarks, ranks, tiny
from nanoengine.course.watching import shuffle_blocks, unbound_caches, watched
from nanoengine.course.workloads import SCENARIOS, Arrival, Scenario
from nanoengine.engine.engine import LLMEngine
from nanoengine.engine.record import StepRecord

__all__ = ["SCENARIOS", "Arrival", "Observation", "Scenario", "run"]

_MAX_STEPS = 300


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

    with ranks.shared_buffer(scenario.buffer_bytes):
        engine = LLMEngine(folder, EngineConfig.from_kwargs(**scenario.options), on_step)
    with contextlib.closing(engine):
        outputs = _run_in(engine, scenario, seen)
    for name, token_ids in outputs.items():
        seen.tokens[name] = token_ids
        seen.logits[name] = np.stack(rows[name][: len(token_ids)]).astype(np.float32)
    return seen


def _run_in(engine: LLMEngine, scenario: Scenario, seen: Observation) -> dict[str, list[int]]:
    """Prepare the engine's memory, watch its runs, and feed it."""
    seen.num_blocks = engine.runner.num_kvcache_blocks
    if scenario.warm_up:
        with unbound_caches(engine):
            engine.runner.warm_up()
    engine.runner.kv_cache.fill_(torch.nan)
    shuffle_blocks(engine)
    engine.runner.run = watched(engine, engine.runner.run, seen)  # type: ignore[method-assign]
    return _feed(engine, scenario)


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
