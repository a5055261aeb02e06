"""The overlapped loop: each numbered line of its semantics, on the real scheduler and engine."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runner import EOS, FakeRunner, expected_tokens, fake_engine
from tiny_models import random_prompts

from nanoengine import SamplingParams
from nanoengine.engine import inputs
from nanoengine.engine.block_manager import BlockManager
from nanoengine.engine.engine import LLMEngine
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sampling import sampling_inputs
from nanoengine.engine.scheduler import Scheduler, Step
from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence, Status
from nanoengine.layers.sampler import uniform_noise
from nanoengine.llm import LLM


def make_scheduler(budget: int = 16, num_blocks: int = 16) -> Scheduler:
    """A scheduler over blocks of 4."""
    return Scheduler(BlockManager(num_blocks, 4), 4, budget)


def sequence(name: str, prompt: list[int], max_tokens: int = 8) -> Sequence:
    """A greedy request."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    return Sequence(name, prompt, params, len(prompt) + max_tokens)


def advance(scheduler: Scheduler) -> Step:
    """Schedule and launch one step."""
    step = scheduler.schedule()
    assert step is not None
    scheduler.launched(step)
    return step


def runner_of(engine: LLMEngine) -> FakeRunner:
    """The engine's fake runner."""
    assert isinstance(engine.runner, FakeRunner)
    return engine.runner


def run_all(engine: LLMEngine) -> None:
    """Step until nothing is left."""
    while engine.has_unfinished:
        engine.step()


def test_1_items_not_live_counters_are_applied() -> None:
    scheduler = make_scheduler(budget=6)
    seq = sequence("a", list(range(1, 15)))
    scheduler.add(seq)
    first, second = advance(scheduler), advance(scheduler)
    assert first.items == [ScheduledItem(seq, 0, 6, emits=False)]
    assert second.items == [ScheduledItem(seq, 6, 12, emits=False)]
    assert seq.num_cached_tokens == 12  # the live counter is a step ahead
    assert scheduler.applied(first.items[0], token=99) is False
    assert seq.token_ids == list(range(1, 15))  # a chunk's token is thrown away
    # of the items [0, 6) only block 0 is full, whatever has been launched since
    assert list(scheduler.block_manager.hash_to_block_id.values()) == seq.block_table[:1]
    scheduler.applied(second.items[0], token=99)
    assert list(scheduler.block_manager.hash_to_block_id.values()) == seq.block_table[:3]


def test_2_placeholders_keep_lengths_and_slots_exact() -> None:
    scheduler = make_scheduler()
    seqs = [sequence("a", [1, 2, 3]), sequence("b", [4, 5, 6, 7])]
    for seq in seqs:
        scheduler.add(seq)
    advance(scheduler)
    assert [seq.last_token for seq in seqs] == [-(seq.row + 1) for seq in seqs]
    assert [len(seq) for seq in seqs] == [4, 5]
    assert seqs[0].row != seqs[1].row
    step = scheduler.schedule()  # b's fifth token opens its second block
    assert step is not None
    assert step.decode is not None
    lists = inputs.prepare_decode(step.decode.seqs, 4)
    assert lists.positions == [3, 4]
    assert lists.context_lens == [4, 5]
    assert lists.slot_mapping == [
        seqs[0].block_table[0] * 4 + 3,
        seqs[1].block_table[1] * 4,
    ]
    assert lists.input_ids == [-(seq.row + 1) for seq in seqs]


def test_3_the_device_replaces_placeholders(
    checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM]
) -> None:
    """The integer lists hold negative ids; the model gets the tokens."""
    fed: list[list[int]] = []
    records: list[StepRecord] = []
    llm = make_llm(checkpoint("qwen3"), on_step=records.append)
    runner = llm.engine.runner
    prepare = runner.prepare

    def spy(batch: Batch) -> object:
        prepared = prepare(batch)
        fed.append(prepared[0].tolist())
        return prepared

    runner.prepare = spy  # type: ignore[method-assign, assignment]
    greedy = SamplingParams(temperature=0, max_tokens=4)
    outputs = llm.generate(random_prompts([5, 3]), greedy, use_tqdm=False)
    decodes = [record for record in records if not record.batch.is_prefill]
    assert all(min(record.inputs.input_ids) < 0 for record in decodes if record.inputs)
    assert [list(ids) for ids in zip(*fed[1:4], strict=True)] == [
        output.token_ids[:3] for output in outputs
    ]


def test_4_tokens_are_written_by_position_after_the_next_launch() -> None:
    scheduler = make_scheduler()
    seq = sequence("a", [1, 2, 3])
    scheduler.add(seq)
    first, second = advance(scheduler), advance(scheduler)
    assert seq.token_ids == [1, 2, 3, -1, -1]
    scheduler.applied(first.items[0], token=7)
    assert seq.token_ids == [1, 2, 3, 7, -1]
    assert not scheduler.block_manager.hash_to_block_id  # token 3 is computed by the next item
    scheduler.applied(second.items[0], token=8)
    assert seq.token_ids == [1, 2, 3, 7, 8]
    block = scheduler.block_manager.blocks[seq.block_table[0]]
    assert block.token_ids == [1, 2, 3, 7]  # full, hashed, and without a placeholder


@pytest.mark.parametrize("overlap", [False, True])
def test_5_a_length_stop_launches_nothing_in_vain(tmp_path: Path, overlap: bool) -> None:
    engine = fake_engine(tmp_path, overlap=overlap)
    engine.add_request([1, 2, 3], SamplingParams(max_tokens=6, ignore_eos=True))
    run_all(engine)
    assert len(runner_of(engine).runs) == 6


def eos_prompt(after: int) -> list[int]:
    """A prompt whose continuation ends by itself with its `after`-th token."""
    prompts = ([first, second] for first in range(1, 9) for second in range(1, 40))
    clipped = ([a, b % 9 + 1] * (1 + b // 9) for a, b in prompts)
    return next(p for p in clipped if len(expected_tokens(p, 100)) == after)


def test_5_a_stop_token_is_found_one_step_late() -> None:
    scheduler = make_scheduler()
    seq = sequence("a", [1, 2, 3])
    scheduler.add(seq)
    first, second = advance(scheduler), advance(scheduler)
    assert scheduler.applied(first.items[0], token=EOS)
    scheduler.finish(seq, num_tokens=4)
    assert seq.status is Status.FINISHED
    assert seq.token_ids == [1, 2, 3, EOS]
    assert seq.block_table  # the second step still writes there
    assert scheduler.running == [seq]
    assert scheduler.applied(second.items[0], token=5) is False  # dropped
    assert seq.token_ids == [1, 2, 3, EOS]
    assert not seq.block_table
    assert len(scheduler.block_manager.free_block_ids) == 16
    assert not scheduler.has_work


@pytest.mark.parametrize("overlap", [False, True])
def test_5_a_late_token_costs_one_run(tmp_path: Path, overlap: bool) -> None:
    engine = fake_engine(tmp_path, overlap=overlap)
    prompt = eos_prompt(after=4)
    output = engine.output(engine.add_request(prompt, SamplingParams(max_tokens=50)))
    run_all(engine)
    assert output.token_ids == expected_tokens(prompt, 100)
    assert output.finish_reason == "stop"
    assert len(runner_of(engine).runs) == 4 + overlap


def unread(runner: FakeRunner) -> set[int]:
    """Runs that were launched but not read."""
    launched = {e.run for e in runner.events if e.kind == "launch"}
    return launched - {e.run for e in runner.events if e.kind == "read"}


def test_6_the_step_in_flight_is_drained_before_a_preemption(tmp_path: Path) -> None:
    engine = fake_engine(tmp_path, num_blocks=4, enable_prefix_caching=False)
    preempt, seen = engine.scheduler._preempt, []

    def spy(seq: Sequence) -> None:
        seen.append(unread(runner_of(engine)))
        assert min(seq.token_ids) >= 0
        preempt(seq)

    engine.scheduler._preempt = spy  # type: ignore[method-assign]
    for prompt in ([1, 2, 3, 4, 5], [2, 3, 4, 5, 6]):
        engine.add_request(prompt, SamplingParams(max_tokens=9, ignore_eos=True))
    run_all(engine)
    assert seen
    assert not any(seen)


def test_6_the_step_in_flight_is_drained_before_an_abort(tmp_path: Path) -> None:
    engine = fake_engine(tmp_path)
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    first, second = (engine.output(engine.add_request([i, i], params)) for i in (1, 2))
    for _ in range(3):
        engine.step()
    assert unread(runner_of(engine))
    engine.abort(first.request_id)
    assert not unread(runner_of(engine))
    assert first.finish_reason == "abort"
    assert len(first.token_ids) == 3
    run_all(engine)
    assert second.token_ids == expected_tokens([2, 2], 22, ignore_eos=True)


def test_6_an_error_leaves_nothing_in_flight(tmp_path: Path) -> None:
    engine = fake_engine(tmp_path)
    engine.add_request([1, 2], SamplingParams(max_tokens=20, ignore_eos=True))
    engine.step()
    runner = runner_of(engine)
    run, runner.run = runner.run, lambda batch, record=None: 1 / 0  # type: ignore
    with pytest.raises(ZeroDivisionError):
        engine.step()
    runner.run = run  # type: ignore[method-assign]
    assert not engine.has_unfinished
    assert engine.stats()["free_blocks"] == engine.stats()["num_blocks"]
    output = engine.output(engine.add_request([3], SamplingParams(max_tokens=9)))
    run_all(engine)
    assert output.token_ids == expected_tokens([3], 10)


def test_7_noise_depends_on_seed_and_position_alone() -> None:
    def item(name: str, seed: int, length: int) -> ScheduledItem:
        seq = Sequence(name, [1] * length, SamplingParams(), 100, seed)
        return ScheduledItem(seq, length - 1, length, emits=True)

    import torch

    cpu = torch.device("cpu")
    alone = sampling_inputs(Batch([item("a", 5, 9)], False), 10, cpu).noise
    others = [item("b", 6, 9), item("c", 5, 8), item("a", 5, 9), item("d", 5, 9)]
    batch = sampling_inputs(Batch(others, True), 10, cpu).noise
    assert batch[2] == batch[3] == alone[0] == float(uniform_noise([5], [9])[0])
    assert len({float(x) for x in batch}) == 3


def test_8_the_next_step_is_launched_before_the_last_one_is_read(tmp_path: Path) -> None:
    def log(overlap: bool) -> list[tuple[str, int]]:
        engine = fake_engine(tmp_path, overlap=overlap)
        engine.add_request([1, 2, 3], SamplingParams(max_tokens=3, ignore_eos=True))
        run_all(engine)
        return [(e.kind, e.run) for e in runner_of(engine).events]

    assert log(overlap=True) == [
        ("launch", 0), ("launch", 1), ("read", 0), ("launch", 2), ("read", 1), ("read", 2),
    ]  # fmt: skip
    assert log(overlap=False) == [
        ("launch", 0), ("read", 0), ("launch", 1), ("read", 1), ("launch", 2), ("read", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("overlap", [False, True])
def test_8_the_records_tell_the_same(
    checkpoint: Callable[[str], Path], make_llm: Callable[..., LLM], overlap: bool
) -> None:
    records: list[StepRecord] = []
    llm = make_llm(checkpoint("qwen3"), overlap=overlap, on_step=records.append)
    params = SamplingParams(max_tokens=6, seed=1)
    llm.generate(random_prompts([5, 9]), params, use_tqdm=False)
    assert [record.step for record in records] == list(range(6))
    for before, after in itertools.pairwise(records):
        assert (after.launch_end < before.applied) == overlap
        assert after.launch_start > before.launch_end
