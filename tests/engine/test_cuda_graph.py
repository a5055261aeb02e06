"""Buckets for every batch, and the CPU double: at least as strict as a real graph."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_models import random_prompts

from nanoengine import SamplingParams
from nanoengine.attention import reference
from nanoengine.context import Context, get_context, use_context
from nanoengine.engine import cuda_graph
from nanoengine.engine.cuda_graph import (
    GraphBuffers,
    GraphDouble,
    capture_all,
    graph_buckets,
    pick_bucket,
    stage_inputs,
)
from nanoengine.errors import GraphError
from nanoengine.llm import LLM

CPU = torch.device("cpu")
BLOCK = 4


@pytest.mark.parametrize(("step", "limit"), [(16, 512), (16, 100), (8, 1), (1, 9), (32, 50)])
def test_every_batch_has_a_bucket(step: int, limit: int) -> None:
    for max_num_seqs in range(1, 601):
        buckets = graph_buckets(max_num_seqs, limit, step)
        largest = min(max_num_seqs, limit)
        assert buckets == sorted(set(buckets))
        assert buckets[0] == 1
        assert buckets[-1] == largest  # no buffer is larger than the largest batch
        for batch in range(1, largest + 1):
            bucket = pick_bucket(batch, buckets)
            assert bucket is not None
            assert bucket >= batch
            assert bucket - batch < max(step, batch)  # little is padded
        assert pick_bucket(largest + 1, buckets) is None


def test_the_buckets_of_the_default_engine() -> None:
    assert graph_buckets(512) == [1, 2, 4, 8, *range(16, 513, 16)]
    assert len(graph_buckets(512)) == 36
    assert graph_buckets(12) == [1, 2, 4, 8, 12]
    assert graph_buckets(3) == [1, 2, 3]
    assert pick_bucket(37, graph_buckets(512)) == 48


class Toy:
    """A one-layer "model" that stores its token ids in a cache and sums what attention may read."""

    def __init__(self) -> None:
        self.cache = torch.zeros(8 * BLOCK)
        self.calls = 0

    def __call__(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[b] -> [b, 1]: each row's sum over its context."""
        self.calls += 1
        context = get_context()
        lengths, tables = context.decode_tensors()
        keep = context.slot_mapping >= 0
        self.cache[context.slot_mapping[keep].long()] = input_ids[keep].float()
        out = torch.zeros(len(input_ids), 1)
        for i, length in enumerate(lengths.tolist()):
            slots = [int(tables[i, p // BLOCK]) * BLOCK + p % BLOCK for p in range(length)]
            out[i] = self.cache[slots].sum() if slots else 0.0
        return out


def toy_graphs(buckets: list[int]) -> tuple[Toy, GraphBuffers, dict[int, cuda_graph.Graph]]:
    """A toy model with its graphs."""
    model, buffers = Toy(), GraphBuffers.allocate(buckets[-1], 4, 1, torch.float32, CPU)
    graphs = capture_all(model, buffers, buckets, lambda bucket: GraphDouble(buffers, bucket))
    return model, buffers, graphs


def decode_context(slots: list[int], lengths: list[int], tables: list[list[int]]) -> Context:
    """A decode context of these rows."""
    slot_mapping, context_lens, block_tables = (
        torch.tensor(x, dtype=torch.int32) for x in (slots, lengths, tables)
    )
    return Context(False, slot_mapping, context_lens=context_lens, block_tables=block_tables)


def step(
    graph: cuda_graph.Graph, buffers: GraphBuffers, bucket: int, ids: list[int], context: Context
) -> list[float]:
    """Stage, replay, read."""
    tokens = torch.tensor(ids)
    stage_inputs(buffers, tokens, tokens * 0, context, bucket)
    graph.replay()
    return buffers.hidden_states[: len(ids), 0].tolist()


def test_replay_computes_on_what_was_staged() -> None:
    model, buffers, graphs = toy_graphs([1, 2, 4])
    assert sorted(graphs) == [1, 2, 4]
    assert model.calls >= 3  # each has run before it is replayed
    context = decode_context([5, 9, 0], [2, 2, 1], [[1], [2], [0]])
    model.cache[[4, 8]] = torch.tensor([10.0, 20.0])
    assert step(graphs[4], buffers, 4, [1, 2, 3], context) == [11.0, 22.0, 3.0]
    # the next, smaller batch: rows that were live before are padding now and write nothing
    before = model.cache.clone()
    assert step(graphs[2], buffers, 2, [7], decode_context([6], [3], [[1]])) == [18.0]
    before[6] = 7.0
    assert torch.equal(model.cache, before)


def test_buckets_are_captured_from_the_largest_down_into_one_pool() -> None:
    order, pools = [], []

    class Recorder(GraphDouble):
        def capture(self, body: Callable[[], None], pool: object) -> None:
            order.append(self.bucket)
            pools.append(pool)
            super().capture(body, pool)

    buffers = GraphBuffers.allocate(8, 4, 1, torch.float32, CPU)
    graphs = capture_all(Toy(), buffers, [1, 2, 4, 8], lambda b: Recorder(buffers, b))
    assert order == [8, 4, 2, 1]
    assert pools == [None] + [graphs[8].pool()] * 3


def test_the_live_context_changes_nothing_after_staging() -> None:
    model, buffers, graphs = toy_graphs([1])
    good = decode_context([4], [1], [[1]])
    stage_inputs(buffers, torch.tensor([5]), torch.tensor([0]), good, 1)
    with use_context(decode_context([20], [3], [[5]])):
        graphs[1].replay()
    assert buffers.hidden_states[0].item() == 5.0
    assert model.cache[20] == 0.0
    good.slot_mapping[0] = 30  # nor does the tensor that was staged
    graphs[1].replay()
    assert model.cache[30] == 0.0


@pytest.mark.parametrize("name", GraphBuffers.__dataclass_fields__)
def test_a_replaced_buffer_is_an_error(name: str) -> None:
    _, buffers, graphs = toy_graphs([2])
    setattr(buffers, name, getattr(buffers, name).clone())
    with pytest.raises(GraphError, match=f"buffer {name} is another tensor.*copy into"):
        graphs[2].replay()


def test_a_resized_buffer_is_an_error() -> None:
    _, buffers, graphs = toy_graphs([2])
    buffers.positions = buffers.positions[:1]
    with pytest.raises(GraphError, match="positions"):
        graphs[2].replay()


def test_a_replay_before_its_capture_is_an_error() -> None:
    buffers = GraphBuffers.allocate(2, 4, 1, torch.float32, CPU)
    with pytest.raises(GraphError, match="bucket 2 is replayed before its capture"):
        GraphDouble(buffers, 2).replay()


def test_a_batch_that_does_not_fit_the_buffers_is_an_error() -> None:
    _, buffers, _ = toy_graphs([2])
    context = decode_context([1, 2, 3], [1, 1, 1], [[0]] * 3)
    with pytest.raises(RuntimeError):
        stage_inputs(buffers, torch.tensor([1, 2, 3]), torch.tensor([0, 0, 0]), context, 2)


def test_a_padded_row_that_is_read_shows() -> None:
    """Its table is no block of any cache, and its result is no number."""
    _, buffers, graphs = toy_graphs([4])
    step(graphs[4], buffers, 4, [1], decode_context([0], [1], [[0]]))
    assert buffers.hidden_states[1:].isnan().all()
    seen: list[torch.Tensor] = []

    def spy(input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        seen.append(get_context().decode_tensors()[1].clone())
        return torch.zeros(len(input_ids), 1)

    graphs = capture_all(spy, buffers, [4], lambda bucket: GraphDouble(buffers, bucket))
    step(graphs[4], buffers, 4, [1], decode_context([0], [1], [[0]]))
    assert (seen[-1][1:] > 1_000_000).all()
    # the reference backend refuses such a table as soon as it reads one
    q, kv = torch.zeros(1, 2, 4), torch.zeros(8, BLOCK, 1, 4)
    leak = Context(False, torch.tensor([-1]), context_lens=torch.tensor([1], dtype=torch.int32),
                   block_tables=seen[-1][1:2])  # fmt: skip
    with pytest.raises(Exception, match="block 2147483647"):
        reference.attend(q, q[:, :1], q[:, :1], kv, kv, leak, 1.0)


def keep_old_slots(
    buffers: GraphBuffers, input_ids: torch.Tensor, positions: torch.Tensor, context: Context,
    bucket: int,
) -> None:  # fmt: skip
    """A plausible mistake: stage the live rows, forget the padded ones."""
    stage_inputs(buffers, input_ids, positions, context, len(input_ids))


def keep_first_staging() -> Callable[..., None]:
    """Another: bind the context instead of copying it (only the first step is staged)."""
    done = []

    def stage(*args: object) -> None:
        if not done:
            stage_inputs(*args)  # type: ignore[arg-type]
        done.append(1)

    return stage


@pytest.mark.parametrize("wrong", [keep_old_slots, keep_first_staging()])
def test_wrong_staging_changes_the_tokens(
    checkpoint: Callable[[str], Path],
    make_llm: Callable[..., LLM],
    monkeypatch: pytest.MonkeyPatch,
    wrong: Callable[..., None],
) -> None:
    """On a shrinking batch in the real engine; the right staging gives the eager tokens."""
    prompts = random_prompts([3 + i % 5 for i in range(11)])
    params = [SamplingParams(temperature=0, max_tokens=4 + 3 * i) for i in range(11)]

    def tokens(**options: object) -> list[list[int]]:
        # few blocks: what a finished sequence wrote is soon another's
        llm = make_llm(checkpoint("qwen3"), num_kvcache_blocks=20, **options)
        return [out.token_ids for out in llm.generate(prompts, params, use_tqdm=False)]

    eager = tokens(enforce_eager=True)
    assert tokens(enforce_eager=False) == eager
    monkeypatch.setattr(cuda_graph, "stage_inputs", wrong)
    try:
        wrong_tokens = tokens(enforce_eager=False)
    except Exception:
        return
    assert wrong_tokens != eager


@pytest.mark.parametrize(("slot", "length"), [(9, 0), (-1, 5), (-1, -1)])
def test_a_half_padded_row_is_an_error(slot: int, length: int) -> None:
    """It would write K and V nobody asked for, or read what nobody needs."""
    _, buffers, graphs = toy_graphs([2])
    stage_inputs(buffers, torch.tensor([1]), torch.tensor([0]), decode_context([4], [1], [[1]]), 2)
    graphs[2].replay()
    buffers.slot_mapping[1], buffers.context_lens[1] = slot, length
    with pytest.raises(GraphError, match=rf"row 1 of bucket 2 has slot {slot} and .* {length}:"):
        graphs[2].replay()


def test_one_context_for_all_replays_is_right_too(
    checkpoint: Callable[[str], Path],
    make_llm: Callable[..., LLM],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reference backend keeps what it worked out for a Context: not across replays."""
    contexts: dict[int, Context] = {}
    fresh = GraphBuffers.context
    monkeypatch.setattr(
        GraphBuffers, "context", lambda self, b: contexts.setdefault(b, fresh(self, b))
    )
    prompts = random_prompts([3, 5, 2])
    params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
    eager, graph = (
        [
            out.token_ids
            for out in make_llm(checkpoint("qwen3"), enforce_eager=eager, max_num_seqs=4).generate(
                prompts, params, use_tqdm=False
            )
        ]
        for eager in (True, False)
    )
    assert contexts
    assert graph == eager
