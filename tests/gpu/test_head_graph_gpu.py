"""Real graphs of logits and sampling: right at every batch size, and nothing is launched beside."""

import random

import pytest
import torch
from gpu.conftest import prompts
from gpu.test_engine_gpu import decode_batch

from nanoengine import SamplingParams
from nanoengine.engine import head_graph
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sampling import pick_tokens, sampling_inputs

STEPS = 20


def mixed_batch(runner, size, seed):
    """A decode step of greedy and sampled rows."""
    rng = random.Random(seed)
    batch = decode_batch(runner, [rng.randint(1, 800) for _ in range(size)], seed)
    for item in batch.items:
        item.seq.params = SamplingParams(temperature=rng.choice([0.0, 0.6, 1.0, 1.5]))
        item.seq.seed = rng.getrandbits(64)
    return batch


def sampled_again(runner, batch, logits, table):
    """Tokens of the same logits by launches; `table` is written instead of last_token."""
    wanted = sampling_inputs(batch, runner.model_config.vocab_size, runner.device)
    return pick_tokens(runner.kernels, logits, wanted, table).tolist()


def test_tokens_at_every_batch_size(make_llm):
    """Launched one behind the other, so that a step that reads too early reads the one before."""
    runner = make_llm(max_num_seqs=80, num_kvcache_blocks=400).engine.runner
    runner.kv_cache.normal_()
    runs = []
    for size in [*range(1, 81), *range(80, 0, -3)]:
        batch, record = mixed_batch(runner, size, seed=len(runs)), StepRecord(0, None)
        runner.last_token.fill_(-7)
        tokens = runner.run(batch, record)
        runs.append((batch, tokens, record, runner.last_token.clone()))
    assert sorted(runner.head.logits) == [b for b in runner.buckets if b <= head_graph.LARGEST]
    for batch, tokens, record, table in runs:
        size, copy = len(batch.items), torch.full_like(table, -7)
        assert tokens.tolist() == sampled_again(runner, batch, record.logits, copy), size
        assert torch.equal(table[:-1], copy[:-1]), size  # padded rows wrote nowhere


def test_the_sampling_graph_is_used(make_llm, monkeypatch):
    """Also by an engine with a record; not in steps with a filter or a banned token."""
    llm = make_llm(overlap=False)
    head, used, filtered = llm.engine.runner.head, [], []
    sample = head.sample

    def spy(logits, wanted):
        tokens = sample(logits, wanted)
        used.append(tokens is not None)
        filtered.append(not wanted.plain)
        return tokens

    monkeypatch.setattr(head, "sample", spy)
    params = [
        SamplingParams(temperature=0.8, max_tokens=20, ignore_eos=True),
        SamplingParams(temperature=0.8, max_tokens=6, ignore_eos=True, top_k=9),
        SamplingParams(temperature=0.8, max_tokens=12, min_tokens=9, stop_token_ids=[3]),
    ]
    llm.generate(prompts([5, 9, 70]), params, use_tqdm=False)
    assert used[0] is False  # prefill
    assert used[1:] == [not other for other in filtered[1:]]
    assert sum(used) > 5
    assert sum(filtered) == 9  # min_tokens


@pytest.mark.parametrize("options", [{}, {"graph_max_batch": 4}, {"overlap": False}], ids=str)
def test_the_same_tokens_without_head_graphs(make_llm, monkeypatch, options):
    """Batches that are their buckets, so that the head's product is the same kernel's."""
    texts = prompts([3, 50, 300, 17])
    params = [SamplingParams(temperature=0.7 * (i % 2), max_tokens=60, seed=i, ignore_eos=True,
                             min_tokens=8 * i) for i in range(4)]  # fmt: skip
    found = []
    for largest in (head_graph.LARGEST, 0):
        monkeypatch.setattr(head_graph, "LARGEST", largest)
        llm = make_llm(**options)
        assert bool(llm.engine.runner.head.logits) == (largest > 0)
        found.append([out.token_ids for out in llm.generate(texts, params, use_tqdm=False)])
    assert found[0] == found[1]


def test_a_steady_step_is_two_replays_and_one_kernel(make_llm):
    """And a copy there and one back; batch 1, where the host is what a step waits for."""
    from torch.profiler import ProfilerActivity, profile

    engine = make_llm().engine
    engine.add_request([1, 2, 3], SamplingParams(max_tokens=100, ignore_eos=True))
    for _ in range(10):
        engine.step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(STEPS):
            engine.step()
        torch.cuda.synchronize()
    engine.reset()
    counts = {"GraphLaunch": 0, "LaunchKernel": 0, "MemcpyAsync": 0}
    for event in seen.key_averages():
        for what in counts:
            if event.key.startswith(("cuda", "cu")) and what in event.key:
                counts[what] += event.count
    assert counts == {"GraphLaunch": 2 * STEPS, "LaunchKernel": STEPS, "MemcpyAsync": 2 * STEPS}


@pytest.mark.parametrize("options", [{}, {"graph_max_batch": 4}, {"enforce_eager": True}], ids=str)
def test_nothing_compiles_after_start_up(make_llm, options):
    """Whatever path a step takes: batches beyond the graphs, filters, banned tokens, records."""
    import triton

    llm = make_llm(max_num_batched_tokens=2048, max_num_seqs=70, **options)
    compiled = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **facts: compiled.append(facts["repr"])
    try:
        rng = random.Random(1)
        for count in (1, 5, 70, 3):
            texts = prompts([rng.randint(1, 300) for _ in range(count)])
            params = [
                SamplingParams(max_tokens=rng.randint(2, 20), top_k=9 * (i % 4 == 3),
                               min_tokens=2 * (i % 5 == 4), temperature=rng.choice([0.0, 1.0]))
                for i in range(count)
            ]  # fmt: skip
            llm.generate(texts, params, use_tqdm=False)
            llm.engine.on_step = lambda record: None
    finally:
        triton.knobs.runtime.jit_post_compile_hook = None
    assert compiled == []


def test_logits_that_are_kept_count_as_graph_memory(make_llm):
    """So that a reserve too small for them is refused when the engine is built."""
    head = make_llm(max_num_seqs=200).engine.runner.head
    rows = sum(len(logits) for logits in head.logits.values())
    assert rows == 1 + 2 + 4 + 8 + 16 + 32 + 48 + 64
    assert len({logits.untyped_storage().data_ptr() for logits in head.logits.values()}) == 8
