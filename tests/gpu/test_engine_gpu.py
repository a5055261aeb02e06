"""The whole engine on a GPU: against transformers, graphs against eager, overlap, memory."""

import random

import pytest
import torch
from gpu.conftest import SHAPE, prompts

from nanoengine import SamplingParams
from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence

# Relative difference of two bfloat16 computations of the same logits: 2.4e-2 was seen
NOISE = 4e-2


def decode_batch(runner, lengths, seed=0):
    """A decode step over a cache of random numbers; blocks are shared out in a random order."""
    rng = random.Random(seed)
    blocks = rng.sample(range(runner.num_kvcache_blocks), runner.num_kvcache_blocks)
    items = []
    for row, length in enumerate(lengths):
        seq = Sequence(str(row), prompts([length], seed + row)[0], SamplingParams(), 4096)
        seq.row, seq.block_table = row, [blocks.pop() for _ in range(-(-length // 256))]
        items.append(ScheduledItem(seq, length - 1, length, emits=True))
    return Batch(items, is_prefill=False)


def logits_of(runner, batch, eager=False):
    """[b, vocab] float32 logits of one run; the K and V it writes are the same every time."""
    input_ids, positions, context = runner.prepare(batch)
    from nanoengine.context import use_context

    buckets = runner.buckets
    with torch.inference_mode(), use_context(context):
        runner.buckets = [] if eager else buckets
        hidden = runner.run_model(input_ids, positions)
        runner.buckets = buckets
        return runner.model.compute_logits(hidden).float()


def relative(got, want):
    return float((got - want).norm() / want.norm())


def test_graph_against_eager_at_every_batch_size(make_llm):
    runner = make_llm().engine.runner
    assert runner.choice.name == "triton"
    assert runner.graphs
    runner.kv_cache.normal_()
    for size in range(1, 41):
        batch = decode_batch(runner, [random.Random(i).randint(1, 800) for i in range(size)])
        eager, graph = logits_of(runner, batch, eager=True), logits_of(runner, batch)
        assert graph.isfinite().all()
        limit = 1e-6 if size in runner.buckets else NOISE  # the same kernels, or another size's
        assert relative(graph, eager) < limit, size


def test_logits_against_transformers(make_llm, model_folder):
    from transformers import AutoModelForCausalLM

    records = []
    llm = make_llm()
    llm.engine.on_step = records.append
    llm.engine.runner.kv_cache.fill_(torch.nan)
    texts = prompts([1, 5, 100, 257, 700, 64])
    outs = llm.generate(texts, SamplingParams(temperature=0, max_tokens=20), use_tqdm=False)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).to("cuda")
    truth = {}
    for i, out in enumerate(outs):
        tokens = torch.tensor([texts[i] + out.token_ids], device="cuda")
        with torch.inference_mode():
            truth[f"request-{i}"] = model(tokens).logits[0]
    seen = 0
    for record in records:
        for row, (seq, _, end, emits) in enumerate(record.batch.items):
            if not emits or end > len(truth[seq.request_id]):
                continue
            want, got = truth[seq.request_id][end - 1], record.logits[row].float()
            assert relative(got, want) < NOISE
            top = want.topk(2).values
            if top[0] - top[1] > 0.05 * want.std():
                assert int(got.argmax()) == int(want.argmax())
                seen += 1
    assert seen > 60


def test_history_gives_what_a_fresh_prefill_gives(make_llm):
    """Chunks, a prefix hit and single tokens against one prefill of the same tokens."""
    tokens = prompts([900])[0]
    params = SamplingParams(temperature=0, max_tokens=1)
    found = []
    for options, before in (
        ({}, []), ({"max_num_batched_tokens": 130}, []), ({}, [tokens[:600]]),
    ):  # fmt: skip
        llm, records = make_llm(**options), []
        llm.engine.runner.kv_cache.fill_(torch.nan)
        for text in before:
            llm.generate([text], params, use_tqdm=False)
        llm.engine.on_step = records.append
        llm.generate([tokens], params, use_tqdm=False)
        found.append(records[-1].logits[-1].float())
    assert relative(found[1], found[0]) < NOISE
    assert relative(found[2], found[0]) < NOISE


def test_overlap_gives_the_same_tokens(make_llm):
    texts = prompts([3, 50, 300, 17, 256, 90, 511, 2] * 3)
    params = [
        SamplingParams(temperature=0.8 * (i % 2), max_tokens=5 + 3 * i, seed=i, ignore_eos=True,
                       top_k=20 if i % 5 == 0 else 0, top_p=0.9 if i % 7 == 0 else 1.0)
        for i in range(24)
    ]  # fmt: skip
    first, second = (
        [o.token_ids for o in make_llm(overlap=overlap).generate(texts, params, use_tqdm=False)]
        for overlap in (True, False)
    )
    assert first == second


def test_a_thousand_requests_with_preemption_on_poisoned_memory(make_llm):
    rng = random.Random(5)
    llm = make_llm(num_kvcache_blocks=60, kvcache_block_size=64, max_num_seqs=64)
    llm.engine.runner.kv_cache.fill_(torch.nan)
    texts = prompts([rng.randint(1, 200) for _ in range(1000)])
    params = [
        SamplingParams(temperature=rng.choice([0.0, 1.0]), max_tokens=rng.randint(1, 40), seed=i,
                       ignore_eos=True)
        for i in range(1000)
    ]  # fmt: skip
    bad = []

    def check(record):
        if not record.logits.isfinite().all():
            bad.append(record.step)

    llm.engine.on_step = check
    outs = llm.generate(texts, params, use_tqdm=False)
    assert [len(o.token_ids) for o in outs] == [p.max_tokens for p in params]
    assert all(0 <= t < SHAPE["vocab_size"] for o in outs for t in o.token_ids)
    assert llm.engine.stats()["preemptions"] > 0
    assert llm.engine.stats()["free_blocks"] == 60
    assert not bad


@pytest.mark.parametrize(
    "missing",
    [{"pdl": False}, {"tma": False}, {"shared_memory": 99 * 1024}, {"shared_memory": 64 * 1024},
     {"pdl": False, "tma": False, "shared_memory": 64 * 1024, "sms": 40}],
)  # fmt: skip
def test_every_guard_can_be_off(make_llm, force_guards, missing):
    full = make_llm(max_num_seqs=17).engine.runner
    force_guards(**missing)
    less = make_llm(max_num_seqs=17).engine.runner
    full.kv_cache.normal_()
    less.kv_cache.copy_(full.kv_cache)
    for size in (1, 3, 17):
        batch = decode_batch(full, [random.Random(i).randint(1, 800) for i in range(size)])
        assert relative(logits_of(less, batch), logits_of(full, batch)) < NOISE


def test_nothing_compiles_after_start_up(make_llm):
    import triton

    llm = make_llm(max_num_batched_tokens=2048)
    compiled = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **facts: compiled.append(facts["repr"])
    try:
        rng = random.Random(1)
        for count in (1, 5, 33, 60):
            texts = prompts([rng.randint(1, 900) for _ in range(count)])
            params = [SamplingParams(max_tokens=rng.randint(1, 30)) for _ in texts]
            llm.generate(texts + texts[:1], [*params, params[0]], use_tqdm=False)
    finally:
        triton.knobs.runtime.jit_post_compile_hook = None
    assert compiled == []
