"""The per-step message: what a worker makes of it is what rank 0 prepares for itself."""

import random
from array import array
from pathlib import Path
from typing import Any

import pytest
from fake_runner import VOCAB, expected_tokens, fake_engine

from nanoengine import SamplingParams
from nanoengine.engine import inputs
from nanoengine.engine.engine import LLMEngine
from nanoengine.engine.sequence import Batch
from nanoengine.engine.tensor_parallel import BatchReader, BatchWriter


def prepared(batch: Batch, block_size: int) -> Any:
    """The model's inputs for a batch."""
    prepare = inputs.prepare_prefill if batch.is_prefill else inputs.prepare_decode
    return prepare(batch.seqs, block_size)


class Mirror:
    """Stands around a runner: every batch also goes through a message, and is compared."""

    def __init__(self, engine: LLMEngine) -> None:
        self.engine, self.runner = engine, engine.runner
        self.writer, self.reader = BatchWriter(), BatchReader()
        self.decode_sizes: list[tuple[int, int, int]] = []  # sequences, new blocks, int32 values

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)

    def run(self, batch: Batch, record: Any = None) -> Any:
        values = self.writer.encode(batch)
        there = self.reader.decode(array("i", values))
        size = self.runner.block_size
        assert prepared(there, size) == prepared(batch, size)
        assert [seq.row for seq in there.seqs] == [seq.row for seq in batch.seqs]
        if not batch.is_prefill:
            known = sum(values[i + 4] for i in self.starts(values))
            self.decode_sizes.append((len(batch.items), known, len(values)))
        return self.runner.run(batch, record)

    @staticmethod
    def starts(values: list[int]) -> list[int]:
        """Where each sequence's integers begin."""
        found, at = [], 1
        while at < len(values):
            found.append(at)
            at += 5 + values[at + 4] + values[at + 2] - values[at + 1]
        return found


@pytest.mark.parametrize("seed", range(6))
def test_workers_see_what_rank_0_prepares(tmp_path: Path, seed: int) -> None:
    """Chunks, prefix hits, preemptions, aborts and rows that change hands."""
    rng = random.Random(seed)
    engine = fake_engine(
        tmp_path, num_blocks=10, max_num_batched_tokens=9, max_num_seqs=5, overlap=seed % 2 == 0
    )
    mirror = engine.runner = Mirror(engine)  # type: ignore[assignment]
    shared = [rng.randrange(1, VOCAB) for _ in range(12)]
    prompts, outputs = {}, {}
    for _ in range(25):
        tail = [rng.randrange(1, VOCAB) for _ in range(rng.randrange(1, 12))]
        prompt = shared[: rng.choice([0, 4, 8, 12])] + tail
        name = engine.add_request(prompt, SamplingParams(max_tokens=rng.randrange(6, 14)))
        prompts[name], outputs[name] = prompt, engine.output(name)
        for _ in range(rng.randrange(3)):
            engine.step()
        if rng.random() < 0.1:
            engine.abort(name)
    while engine.has_unfinished:
        engine.step()
    assert engine.scheduler.num_preemptions > 0
    for name, output in outputs.items():
        if output.finish_reason != "abort":
            limit = len(prompts[name]) + len(output.token_ids)
            assert output.token_ids == expected_tokens(prompts[name], limit)
    assert all(count == 1 + 6 * seqs + new for seqs, new, count in mirror.decode_sizes)
    assert all(new <= seqs for seqs, new, _ in mirror.decode_sizes)  # each block is told once
