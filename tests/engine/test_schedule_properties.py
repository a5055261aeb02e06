"""Random schedules without a model: invariants at every step, and the right tokens at the end."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_runner import FakeRunner, expected_tokens, fake_engine
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from nanoengine import SamplingParams
from nanoengine.engine.engine import LLMEngine
from nanoengine.engine.request import RequestOutput
from nanoengine.engine.scheduler import Step

SETTINGS = settings(
    max_examples=650, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass
class Plan:
    """One request: when it arrives, and when it is aborted (counted in steps), if at all."""

    prompt: list[int]
    max_tokens: int
    arrival: int
    abort: int | None
    ignore_eos: bool


@dataclass
class Scenario:
    """A pool, its limits, and what is asked of it."""

    options: dict[str, int | bool | None]
    plans: list[Plan]


@st.composite
def scenarios(draw: st.DrawFn, aborts: bool) -> Scenario:
    """Small pools and a two-letter alphabet: preemptions and prefix hits are common."""
    block_size = draw(st.sampled_from([2, 4]))
    num_blocks = draw(st.integers(3, 14))
    seqs = draw(st.integers(1, 5))
    options: dict[str, int | bool | None] = {
        "num_blocks": num_blocks,
        "block_size": block_size,
        "max_num_seqs": seqs,
        "max_num_batched_tokens": draw(st.integers(1, 12)),
        "max_prefill_tokens": draw(st.none() | st.integers(1, 6)),
        "max_model_len": draw(st.just(1000) | st.integers(4, 30)),
        "overlap": draw(st.booleans()),
        "enable_prefix_caching": draw(st.integers(0, 3)) > 0,
    }
    longest = min(num_blocks * block_size, int(options["max_model_len"] or 0), 4 * block_size)
    plans = st.builds(
        Plan,
        prompt=st.lists(st.integers(1, 2), min_size=1, max_size=longest),
        max_tokens=st.integers(1, 12),
        arrival=st.integers(0, 12),
        abort=(st.none() | st.integers(0, 20)) if aborts else st.none(),
        ignore_eos=st.booleans(),
    )
    return Scenario(options, draw(st.lists(plans, min_size=1, max_size=8)))


def check_pool(engine: LLMEngine) -> None:
    """Reference counts add up to the live tables, and every block is either free or used."""
    manager, scheduler = engine.block_manager, engine.scheduler
    held = Counter(block for seq in scheduler.running for block in seq.block_table)
    assert [block.ref_count for block in manager.blocks] == [
        held[i] for i in range(len(manager.blocks))
    ]
    assert set(manager.free_block_ids) == {i for i in range(len(manager.blocks)) if not held[i]}
    for key, block_id in manager.hash_to_block_id.items():
        assert manager.blocks[block_id].hash == key
    known = [block.hash for block in manager.blocks if block.hash is not None]
    assert len(known) == len(manager.hash_to_block_id)
    for seq in scheduler.running:  # no hash is made of a token that is still unknown
        assert min(seq.token_ids[: len(seq.block_hashes) * manager.block_size], default=0) >= 0
    assert len(scheduler.running) <= scheduler.max_num_seqs
    rows = [seq.row for seq in scheduler.running] + scheduler.free_rows
    assert sorted(rows) == list(range(scheduler.max_num_seqs))
    assert not any(seq.block_table for seq in scheduler.waiting)


def check_step(engine: LLMEngine, step: Step | None) -> None:
    """Every sequence that can advance does, within the token budget."""
    scheduler = engine.scheduler
    items = step.items if step else []
    scheduled = {item.seq.request_id for item in items}
    assert len(scheduled) == len(items)
    for seq in scheduler.running:
        can_advance = seq.request_id in engine.requests and not seq.is_length_stopped
        assert (seq.request_id in scheduled) == can_advance, seq
    assert sum(item.end - item.start for item in items) <= scheduler.max_num_batched_tokens
    if step and step.decode and step.prefill:
        taken = sum(item.end - item.start for item in step.prefill.items)
        assert taken <= max(scheduler.max_prefill_tokens, len(step.prefill.items))


def watch(engine: LLMEngine) -> None:
    """Check every step as it is scheduled."""
    schedule = engine.scheduler.schedule

    def checked() -> Step | None:
        step = schedule()
        check_step(engine, step)
        check_pool(engine)
        return step

    engine.scheduler.schedule = checked  # type: ignore[method-assign]


def play(engine: LLMEngine, plans: list[Plan]) -> list[RequestOutput | None]:
    """Let requests arrive, run and be aborted; checks the pool after every step."""
    watch(engine)
    outputs: list[RequestOutput | None] = [None] * len(plans)
    number = 0
    while number <= 20 or engine.has_unfinished:
        for i, plan in enumerate(plans):
            if plan.arrival == number:
                params = SamplingParams(max_tokens=plan.max_tokens, ignore_eos=plan.ignore_eos)
                outputs[i] = engine.output(engine.add_request(plan.prompt, params, f"r{i}"))
            if plan.abort == number:
                engine.abort(f"r{i}")
                check_pool(engine)
        engine.step()
        check_pool(engine)
        number += 1
        assert number < 2000, "the engine does not come to an end"
    return outputs


def check_outputs(
    engine: LLMEngine, plans: list[Plan], outputs: list[RequestOutput | None]
) -> None:
    """Right tokens for those that ran to their end, right beginnings for the aborted."""
    pool = engine.runner.num_kvcache_blocks * engine.runner.block_size + 1
    for plan, output in zip(plans, outputs, strict=True):
        assert output is not None
        limit = min(len(plan.prompt) + plan.max_tokens, engine.max_model_len, pool)
        wanted = expected_tokens(plan.prompt, limit, plan.ignore_eos)
        if output.finish_reason == "abort":
            assert plan.abort is not None
            assert output.token_ids == wanted[: len(output.token_ids)]
        else:
            assert output.token_ids == wanted
            full = len(plan.prompt) + len(wanted) == limit
            ended = not plan.ignore_eos and wanted[-1:] == [0]
            assert output.finish_reason == ("stop" if ended else "length")
            assert ended or full


def check_empty(engine: LLMEngine) -> None:
    """Nothing is left: every block free, every row free, nothing queued or remembered."""
    stats = engine.stats()
    assert stats["waiting"] == stats["running"] == 0
    assert stats["free_blocks"] == stats["num_blocks"]
    assert not engine.requests
    assert not engine.has_unfinished


@pytest.mark.parametrize("aborts", [False, True])
def test_random_schedules(tmp_path: Path, aborts: bool) -> None:
    """The overlap's semantics on random pools, prompts, limits, arrivals and aborts."""

    @SETTINGS
    @given(scenarios(aborts))
    def check(scenario: Scenario) -> None:
        engine = fake_engine(tmp_path, **scenario.options)
        outputs = play(engine, scenario.plans)
        check_outputs(engine, scenario.plans, outputs)
        check_empty(engine)
        event(f"preemptions: {min(engine.stats()['preemptions'], 3)}")

    check()


def test_the_schedules_are_not_easy(tmp_path: Path) -> None:
    """The scenarios above do meet preemptions, prefix hits, mixed steps and late tokens."""
    seen: Counter[str] = Counter()

    @settings(SETTINGS, max_examples=150, database=None, derandomize=True)
    @given(scenarios(aborts=False))
    def count(scenario: Scenario) -> None:
        engine = fake_engine(tmp_path, **scenario.options)
        outputs = play(engine, scenario.plans)
        runner: FakeRunner = engine.runner  # type: ignore[assignment]
        emitted = sum(item.emits for batch in runner.runs for item in batch.items)
        kept = sum(len(output.token_ids) for output in outputs if output)
        seen["late"] += emitted > kept
        seen["preempted"] += engine.scheduler.num_preemptions > 0
        seen["hit"] += any(output.num_reused_tokens for output in outputs if output)
        seen["chunked"] += any(not item.emits for batch in runner.runs for item in batch.items)

    count()
    assert all(seen[kind] >= 5 for kind in ("late", "preempted", "hit", "chunked")), seen
