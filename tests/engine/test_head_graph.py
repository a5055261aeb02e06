"""Logits and sampling in graphs: the tokens of eager steps, and used wherever they can be."""

import gc
import itertools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import random_prompts

from nanoengine import SamplingParams
from nanoengine import context as context_module
from nanoengine.course import swap
from nanoengine.engine import cuda_graph, head_graph, model_runner
from nanoengine.engine.cuda_graph import pick_bucket
from nanoengine.engine.model_runner import ModelRunner
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sampling import SampledTokens, SamplingInputs
from nanoengine.engine.sampling_graph import SamplingBuffers, SamplingDouble, stage_sampling
from nanoengine.engine.sequence import Batch
from nanoengine.errors import GraphError
from nanoengine.llm import LLM

Checkpoint = Callable[[str], Path]
MakeLLM = Callable[..., LLM]
CPU = torch.device("cpu")


def mixed(count: int, **options: Any) -> list[SamplingParams]:
    """Greedy and sampled rows in turn; every request ends two steps after the one before."""
    return [
        SamplingParams(
            temperature=0.9 * (i % 2), max_tokens=3 + 2 * i, seed=i, ignore_eos=True, **options
        )
        for i in range(count)
    ]


def tokens_of(llm: LLM, params: list[SamplingParams]) -> list[list[int]]:
    """What the requests say; prompts of different lengths."""
    prompts = random_prompts([3 + i % 5 for i in range(len(params))])
    return [out.token_ids for out in llm.generate(prompts, params, use_tqdm=False)]


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets the bucket of every sampling graph's replay."""
    seen: list[int] = []
    replay = SamplingDouble.replay

    def counted(self: SamplingDouble) -> None:
        seen.append(self._bucket)
        replay(self)

    monkeypatch.setattr(SamplingDouble, "replay", counted)
    return seen


@pytest.mark.parametrize("overlap", [True, False])
def test_the_tokens_of_every_batch_size(
    checkpoint: Checkpoint, make_llm: MakeLLM, replays: list[int], overlap: bool
) -> None:
    params = mixed(21)
    sizes: set[int] = set()
    options = {"max_num_seqs": 21, "overlap": overlap}
    eager = make_llm(checkpoint("qwen3"), enforce_eager=True, **options)
    graph = make_llm(checkpoint("qwen3"), enforce_eager=False, **options)
    run = graph.engine.runner.run

    def spy(batch: Batch, record: StepRecord | None = None) -> SampledTokens:
        if not batch.is_prefill:
            sizes.add(len(batch.items))
        return run(batch, record)

    graph.engine.runner.run = spy  # type: ignore[method-assign]
    expected = tokens_of(eager, params)
    assert not replays
    assert tokens_of(graph, params) == expected
    assert sizes == set(range(1, 22))
    assert set(replays) == {1, 2, 4, 8, 16, 21}


def test_filters_and_banned_tokens_are_sampled_outside(
    checkpoint: Checkpoint, make_llm: MakeLLM, replays: list[int]
) -> None:
    """In the steps that have them; the logits are the graph's all the same."""
    params = mixed(9)
    params[1] = SamplingParams(temperature=1.2, top_k=4, seed=1, max_tokens=6, ignore_eos=True)
    # every token but a few would end it, so that a step without the ban ends it at once
    stops = list(range(3, 500))
    params[2] = SamplingParams(temperature=1.0, seed=2, min_tokens=9, max_tokens=30,
                               stop_token_ids=stops)  # fmt: skip
    params[5] = SamplingParams(temperature=1.2, top_p=0.7, seed=5, max_tokens=9, ignore_eos=True)
    params[6] = SamplingParams(temperature=1.2, min_p=0.2, seed=6, max_tokens=9, ignore_eos=True)
    expected = tokens_of(make_llm(checkpoint("qwen3"), enforce_eager=True), params)
    steps: list[StepRecord] = []
    llm = make_llm(checkpoint("qwen3"), enforce_eager=False, on_step=steps.append)
    assert tokens_of(llm, params) == expected
    assert len(expected[2]) >= 9
    decodes = [step for step in steps if not step.batch.is_prefill]
    assert 0 < len(replays) < len(decodes)


def test_records_hold_the_logits(
    checkpoint: Checkpoint, make_llm: MakeLLM, replays: list[int]
) -> None:
    """Of each step, and not what a later replay leaves in the same place."""
    found = []
    for eager in (True, False):
        steps: list[StepRecord] = []
        tokens_of(make_llm(checkpoint("qwen3"), enforce_eager=eager, on_step=steps.append),
                  mixed(6))  # fmt: skip
        found.append([step.logits for step in steps])
    assert replays
    for want, got in zip(*found, strict=True):
        assert want is not None
        assert got is not None
        torch.testing.assert_close(got, want, atol=1e-3, rtol=0)  # another step's differ by more


def test_preemption_in_a_small_pool(
    checkpoint: Checkpoint, make_llm: MakeLLM, replays: list[int]
) -> None:
    params = mixed(12)
    expected = tokens_of(make_llm(checkpoint("qwen3"), enforce_eager=True), params)
    llm = make_llm(checkpoint("qwen3"), enforce_eager=False, num_kvcache_blocks=20)
    assert tokens_of(llm, params) == expected
    assert llm.engine.stats()["preemptions"] > 0
    assert replays


def test_a_larger_bucket_ends_with_the_body(
    checkpoint: Checkpoint, make_llm: MakeLLM, replays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    params = mixed(14)
    expected = tokens_of(make_llm(checkpoint("qwen3"), enforce_eager=True), params)
    monkeypatch.setattr(head_graph, "LARGEST", 4)
    llm = make_llm(checkpoint("qwen3"), enforce_eager=False)
    assert tokens_of(llm, params) == expected
    head = llm.engine.runner.head
    assert head is not None
    assert sorted(head.logits) == sorted(set(replays)) == [1, 2, 4]


def test_a_bucket_larger_than_needed(
    checkpoint: Checkpoint, make_llm: MakeLLM, replays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small batches in the large bucket, every other step: the small one's logits are old."""
    params = mixed(4)
    expected = tokens_of(make_llm(checkpoint("qwen3"), enforce_eager=True), params)
    monkeypatch.setattr(head_graph, "LARGEST", 4)
    llm = make_llm(checkpoint("qwen3"), enforce_eager=False)
    turns = itertools.cycle((False, True))
    monkeypatch.setattr(
        cuda_graph,
        "pick_bucket",
        lambda batch, buckets: pick_bucket(batch, buckets[-1:] if next(turns) else buckets),
    )
    assert tokens_of(llm, params) == expected
    assert replays


def test_logits_and_tokens_stay_where_they_are(
    checkpoint: Checkpoint, make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a real graph's do: who keeps them without a copy sees the next step's."""
    llm = make_llm(checkpoint("qwen3"), enforce_eager=False)
    head = llm.engine.runner.head
    assert head is not None
    sample, places = head.sample, set()

    def spy(logits: torch.Tensor, wanted: SamplingInputs) -> torch.Tensor | None:
        tokens = sample(logits, wanted)
        if tokens is not None:
            assert head.newest is not None
            places.add((head.newest, logits.data_ptr(), head._tokens[head.newest].data_ptr()))
        return tokens

    monkeypatch.setattr(head, "sample", spy)
    tokens_of(llm, mixed(9))
    assert sorted(bucket for bucket, _, _ in places) == [1, 2, 4, 8, 16]


# -- a student's run ---------------------------------------------------------------------------


def with_steps(change: Callable[[ModelRunner, torch.Tensor, torch.Tensor], torch.Tensor]) -> Any:
    """`ModelRunner.run` with something between steps 3 and 4."""

    @torch.inference_mode()
    def run(self: ModelRunner, batch: Batch, record: StepRecord | None = None) -> SampledTokens:
        self._record = record
        input_ids, positions, context = self.prepare(batch)
        with context_module.use_context(context):
            hidden = self.run_model(input_ids, positions)
            logits = change(self, hidden, self.model.compute_logits(hidden))
            return SampledTokens(self.sample_on_rank_0(logits, batch))

    return run


CHANGES: dict[str, Callable[[ModelRunner, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "nothing": lambda runner, hidden, logits: logits,
    "a copy": lambda runner, hidden, logits: logits.clone(),
    "hidden states of its own": lambda runner, hidden, logits: runner.model.compute_logits(
        hidden.clone() * 2
    ),
    "halved in place": lambda runner, hidden, logits: logits.mul_(0.5),
    "another tensor": lambda runner, hidden, logits: -logits,
    "a token banned in place": lambda runner, hidden, logits: logits.index_fill_(
        1, torch.tensor([5, 6]), -torch.inf
    ),
    "the logits twice": lambda runner, hidden, logits: runner.model.compute_logits(hidden),
}


@pytest.mark.parametrize("name", CHANGES)
def test_any_run_gives_the_tokens_of_eager_steps(
    checkpoint: Checkpoint, make_llm: MakeLLM, replays: list[int], name: str
) -> None:
    """The five steps mean what they say, also for who does something between them."""
    params = mixed(9)
    with swap("06.run", with_steps(CHANGES[name])):
        expected = tokens_of(make_llm(checkpoint("qwen3"), enforce_eager=True), params)
        assert tokens_of(make_llm(checkpoint("qwen3"), enforce_eager=False), params) == expected
    in_place = name in ("nothing", "halved in place", "a token banned in place", "the logits twice")
    assert bool(replays) == in_place


def test_inputs_of_another_batch_are_not_replayed(
    checkpoint: Checkpoint, make_llm: MakeLLM, replays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever samples for a batch that `prepare` has not seen gets that batch's parameters."""
    params = mixed(7)
    expected = tokens_of(make_llm(checkpoint("qwen3"), enforce_eager=True), params)
    sample = ModelRunner.sample

    def rebuilt(self: ModelRunner, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return sample(self, logits, Batch(list(batch.items), batch.is_prefill))

    monkeypatch.setattr(ModelRunner, "sample", rebuilt)
    assert tokens_of(make_llm(checkpoint("qwen3"), enforce_eager=False), params) == expected
    assert not replays


# -- the rules ---------------------------------------------------------------------------------


class Toy:
    """A captured double whose tokens are the rows' numbers, and its logits full of ones."""

    def __init__(self) -> None:
        self.buffers = SamplingBuffers.allocate(4, CPU)
        self.logits, self.tokens = torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)
        self.double = SamplingDouble(self.buffers, {4: self.tokens}, self.logits, 4)
        self.seen = self.logits
        self.double.capture(self.body, None)

    def body(self) -> None:
        self.seen = self.logits.clone()
        self.tokens.copy_(self.buffers.rows)


def test_padded_rows_are_no_numbers_and_give_no_tokens() -> None:
    toy = Toy()
    wanted = torch.tensor([0.0, 0.7]), torch.tensor([0.1, 0.2]), torch.tensor([3, 1])
    stage_sampling(wanted, toy.buffers.tensors, 4)
    toy.double.replay()
    assert toy.seen.isnan().any(dim=1).tolist() == [False, False, True, True]
    assert toy.tokens.tolist() == [3, 1, -1, -1]
    stage_sampling(tuple(x[:1] for x in wanted), toy.buffers.tensors, 2)  # of a smaller bucket
    assert toy.buffers.rows.tolist() == [3, -1, -1, -1]
    toy.double.replay()
    assert toy.tokens.tolist() == [3, -1, -1, -1]


@pytest.mark.parametrize("name", SamplingBuffers.__dataclass_fields__)
def test_a_replaced_buffer_is_an_error(name: str) -> None:
    toy = Toy()
    setattr(toy.buffers, name, getattr(toy.buffers, name).clone())
    with pytest.raises(GraphError, match=f"buffer {name} is another tensor"):
        toy.double.replay()


def test_a_padded_row_that_is_sampled_is_an_error() -> None:
    toy = Toy()
    toy.buffers.temperatures[2] = 0.5
    with pytest.raises(GraphError, match=r"row 2 of bucket 4 is padding with temperature 0\.5"):
        toy.double.replay()


def test_a_replay_before_its_capture_is_an_error() -> None:
    with pytest.raises(GraphError, match="bucket 2 is replayed before its capture"):
        SamplingDouble(SamplingBuffers.allocate(2, CPU), {}, torch.ones(2, 3), 2).replay()


def forget_the_padding(source: Any, target: Any, bucket: int) -> None:
    """A plausible mistake: stage the live rows alone."""
    stage_sampling(source, target, len(source[0]))


def test_stale_padding_shows(
    checkpoint: Checkpoint, make_llm: MakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that has ended would go on writing its token where another sequence's belongs."""
    params = mixed(11)
    expected = tokens_of(make_llm(checkpoint("qwen3"), enforce_eager=True), params)
    monkeypatch.setattr(model_runner, "stage_sampling", forget_the_padding)
    llm = make_llm(checkpoint("qwen3"), enforce_eager=False, num_kvcache_blocks=40)
    assert tokens_of(llm, params) != expected


def test_an_engine_leaves_no_cycle_behind(checkpoint: Checkpoint) -> None:
    """The model's memory is free as soon as nobody has it, without the garbage collector."""
    llm = LLM(checkpoint("qwen3"), device="cpu", num_kvcache_blocks=16, enforce_eager=False)
    assert "compute_logits" in vars(llm.engine.runner.model)
    head = weakref.ref(llm.engine.runner.model.lm_head)
    gc.collect()
    gc.disable()
    try:
        llm.close()
        del llm
        assert head() is None
    finally:
        gc.enable()
