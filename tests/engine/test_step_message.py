"""The per-step message: what a worker makes of it is what rank 0 prepares for itself."""

import random
from array import array
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fake_runner import VOCAB, expected_tokens, fake_engine
from hypothesis import event, given, settings
from hypothesis import strategies as st
from test_schedule_properties import SETTINGS, Scenario, play, scenarios

from nanoengine import SamplingParams
from nanoengine.engine import inputs
from nanoengine.engine.engine import LLMEngine
from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence
from nanoengine.engine.step_message import GO_ON, BatchReader, BatchWriter


def prepared(batch: Batch, block_size: int) -> Any:
    """The model's inputs for a batch."""
    prepare = inputs.prepare_prefill if batch.is_prefill else inputs.prepare_decode
    return prepare(batch.seqs, block_size)


def seen(batch: Batch, block_size: int) -> Any:
    """Everything a rank needs of a batch: rows, spans, tables, tokens, the model's inputs."""
    items = [
        (item.seq.row, item.start, item.end, list(item.seq.block_table)) for item in batch.items
    ]
    tokens = [item.seq[item.start : item.end] for item in batch.items]
    return batch.is_prefill, items, tokens, prepared(batch, block_size)


class Mirror:
    """Stands around a runner: every batch also goes through messages, and is compared."""

    def __init__(self, engine: LLMEngine) -> None:
        self.engine, self.runner = engine, engine.runner
        self.writer, self.reader = BatchWriter(), BatchReader()
        self.full_writer, self.full_reader = BatchWriter(), BatchReader()
        self.decode_sizes: list[tuple[int, int, int]] = []  # sequences, new blocks, int32 values
        self.short: list[int] = []  # lengths of short messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)

    def run(self, batch: Batch, record: Any = None) -> Any:
        size = self.runner.block_size
        here = seen(batch, size)
        values, full = self.writer.encode(batch), self.full_writer.in_full(batch)
        assert seen(self.reader.decode(array("i", values)), size) == here
        assert seen(self.full_reader.decode(array("i", full)), size) == here
        if values[0] == GO_ON:
            assert not batch.is_prefill
            self.short.append(len(values))
        if not batch.is_prefill:
            known = sum(full[i + 4] for i in self.starts(full))
            self.decode_sizes.append((len(batch.items), known, len(full)))
            assert len(values) in (1 + 2 * known, len(full))
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
    assert bool(mirror.short) == (seed % 2 == 0)  # else the host knows what is fed


@SETTINGS
@given(scenario=scenarios(aborts=True))
def test_any_schedule_arrives(tmp_path: Path, scenario: Scenario) -> None:
    """In the short form and without it: arrivals, ends, aborts, preemptions, growing tables."""
    engine = fake_engine(tmp_path, **scenario.options)
    mirror = engine.runner = Mirror(engine)  # type: ignore[assignment]
    play(engine, scenario.plans)
    event(f"short messages: {min(len(mirror.short), 3)}")
    event(f"with blocks: {any(length > 1 for length in mirror.short)}")


BLOCK = 4


class Batches:
    """Batches of up to four sequences, changed between them as no scheduler would."""

    def __init__(self, number: int) -> None:
        self.seqs = [self.new(row) for row in range(number)]
        self.blocks = count(100)
        self.wide: list[Sequence] = []  # with two tokens in the next batch

    def new(self, row: int) -> Sequence:
        """A sequence in this row, decoding, its newest token on the device."""
        seq = Sequence(f"row-{row}", [7] * (2 + row), SamplingParams(), 1000)
        seq.row, seq.block_table = row, [row, 10 + row]
        seq.token_ids.append(-(row + 1))
        return seq

    def advance(self, seq: Sequence) -> None:
        """One token further, as after a launch, and with a block for it."""
        seq.token_ids.append(-(seq.row + 1))
        if len(seq) > BLOCK * len(seq.block_table):
            seq.block_table.append(next(self.blocks))

    def decode(self) -> Batch:
        """All sequences, a token each (and one more of the wide ones)."""
        items = []
        for seq in self.seqs:
            start = len(seq) - 1 - (seq in self.wide)
            seq.num_cached_tokens, seq.num_scheduled_tokens = start, len(seq) - start
            items.append(ScheduledItem(seq, start, len(seq), emits=True))
        self.wide.clear()
        return Batch(items, is_prefill=False)

    def prefill(self) -> Batch:
        """The first sequence alone, its last two tokens."""
        seq = self.seqs[0]
        seq.num_cached_tokens, seq.num_scheduled_tokens = len(seq) - 2, 2
        return Batch([ScheduledItem(seq, len(seq) - 2, len(seq), emits=True)], is_prefill=True)

    def change(self, what: str, place: int) -> None:
        """One thing that makes the next batch more than the one before, one token further."""
        seq = self.seqs[place % len(self.seqs)]
        if what == "known":
            seq.token_ids[-1] = 5
        elif what == "known before":
            seq.token_ids[-2] = 5
        elif what == "skips":
            self.advance(seq)
        elif what == "wide":
            self.advance(seq)
            self.wide.append(seq)
        elif what == "block":
            seq.block_table.append(next(self.blocks))
        elif what == "moved":  # as a preempted sequence comes back
            seq.block_table = [next(self.blocks) for _ in seq.block_table]
        elif what == "moved and known":
            seq.block_table = list(seq.block_table)
            seq.token_ids[-1] = 5
        elif what == "other":
            other = self.new(seq.row)
            other.token_ids[:] = seq.token_ids
            other.block_table = [next(self.blocks), *seq.block_table[1:]]
            self.seqs[place % len(self.seqs)] = other
        elif what == "order":
            self.seqs.reverse()
        elif what == "ends" and len(self.seqs) > 1:
            self.seqs.remove(seq)
        elif what == "swap":  # two sequences change rows, as after preemptions
            last = self.seqs[-1]
            for one, row in ((seq, last.row), (last, seq.row)):
                one.row, one.token_ids[-1] = row, 6
                one.block_table = list(one.block_table)


CHANGES = ("known", "known before", "skips", "block", "moved", "moved and known", "other", "order",
           "ends", "swap", "prefill", "again", "wide", "none")  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 3)), max_size=2)),
)
def test_any_change_between_two_batches_arrives(
    number: int, steps: list[list[tuple[str, int]]]
) -> None:
    """Whatever happens between two decode batches, the second is read as it is."""
    batches, writer, reader = Batches(number), BatchWriter(), BatchReader()

    def tell(batch: Batch) -> int:
        values = writer.encode(batch)
        assert seen(reader.decode(array("i", values)), BLOCK) == seen(batch, BLOCK)
        return values[0]

    tell(batches.decode())
    before: list[str] = []
    for changes in steps:
        names = [what for what, _ in changes]
        if "none" in names:
            tell(Batch([], is_prefill=False))
        if "again" in names:
            tell(batches.decode())
        for seq in batches.seqs:
            batches.advance(seq)
        for what, place in changes:
            batches.change(what, place)
        if "prefill" in names:
            tell(batches.prefill())
            for seq in batches.seqs:
                batches.advance(seq)
        form = tell(batches.decode())
        assert form == GO_ON or names or "wide" in before, "nothing has changed, and all was told"
        before = names


def test_what_goes_on_is_one_number_and_two_a_block() -> None:
    batches, writer = Batches(3), BatchWriter()
    full = writer.encode(batches.decode())
    assert (full[0], len(full)) == (0, 1 + 3 * (6 + 2))
    messages = []
    for _ in range(4):
        for seq in batches.seqs:
            batches.advance(seq)
        messages.append(writer.encode(batches.decode()))
    # rows 0, 1, 2 begin with 3, 4, 5 tokens and room for 8
    assert messages == [[GO_ON], [GO_ON], [GO_ON], [GO_ON, 2, 100]]
