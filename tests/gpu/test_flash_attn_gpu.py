"""The flash_attn backend against our kernels; skipped where the package is not installed.

Shapes are those that the smallest build of the package has: bfloat16, head_dim 128.
"""

import random

import pytest
import torch
from gpu.conftest import prompts
from gpu.test_engine_gpu import NOISE, decode_batch, logits_of, relative
from kernels.conftest import Arena, make_paged  # noqa: F401 (a fixture)

from nanoengine import SamplingParams
from nanoengine.attention.base import choose_backend
from nanoengine.commands import doctor
from nanoengine.errors import ConfigError

pytest.importorskip("flash_attn", reason="needs the flash-attn package")

ARENA = Arena(torch.device("cuda"), torch.bfloat16, 1e-2)
CLEAR = 0.1  # of the logits' deviation: a lead of the best token that no rounding takes away


def random_lengths(count):
    return [random.Random(i).randint(1, 800) for i in range(count)]


def compare_attention(batch):
    """flash_attn's output, after a look at its difference from ours; the cache is NaN elsewhere."""
    got, want = (
        choose_backend(name, ARENA.device).backend.attend(*batch.args, batch.context, batch.scale)
        for name in ("flash_attn", "triton")
    )
    ARENA.close(got, want)
    return got


def run(llm, texts, max_tokens, one_by_one=False):
    """Greedy tokens of each request, and its float32 logits by (request id, tokens before them).

    The cache is full of NaN at the start: what is read without having been written shows.
    """
    records = []
    llm.engine.on_step = records.append
    llm.engine.runner.kv_cache.fill_(torch.nan)
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    groups = [[text] for text in texts] if one_by_one else [texts]
    outs = [out for group in groups for out in llm.generate(group, params, use_tqdm=False)]
    logits = {
        (seq.request_id, end): record.logits[row].float()
        for record in records
        for row, (seq, _, end, emits) in enumerate(record.batch.items)
        if emits
    }
    return [out.token_ids for out in outs], logits


@pytest.mark.parametrize("heads", [16, 32])
@pytest.mark.parametrize(
    "lengths", [[1], [256], [257], [800], [800, 1, 513], random_lengths(17), [300, 0, 7, 0]]
)
def test_decode_attention(make_paged, heads, lengths):  # noqa: F811
    torch.manual_seed(0)
    got = compare_attention(make_paged(ARENA, lengths, None, heads, 8, 128, 256))
    for row, length in zip(got, lengths, strict=True):
        assert bool(row.any()) == (length > 0)  # padded rows are zero


@pytest.mark.parametrize("heads", [16, 32])
@pytest.mark.parametrize(
    ("new", "history"),
    [
        ([1, 70, 64, 3, 257], None),
        ([800], None),
        ([1, 70, 64, 3, 257], [0, 5, 256, 100, 300]),
        ([1], [511]),
        ([1, 1, 1], [0, 5, 700]),  # chunks of one token take another path in the package
    ],
)
def test_prefill_attention(make_paged, heads, new, history):  # noqa: F811
    torch.manual_seed(0)
    compare_attention(make_paged(ARENA, new, history, heads, 8, 128, 256, prefill=True))


@pytest.mark.parametrize("eager", [True, False])
def test_logits_of_decode_steps(make_llm, eager):
    """On the same random cache; a batch of 3 leaves a padded row in its graph of 4."""
    ours = make_llm(max_num_seqs=17).engine.runner
    flash = make_llm(
        max_num_seqs=17, attention_backend="flash_attn", enforce_eager=eager
    ).engine.runner
    assert flash.choice.name == "flash_attn"
    assert bool(flash.buckets) == (not eager)
    ours.kv_cache.normal_()
    flash.kv_cache.copy_(ours.kv_cache)
    for size in (1, 3, 17):
        batch = decode_batch(ours, random_lengths(size))
        assert relative(logits_of(flash, batch), logits_of(ours, batch)) < NOISE, size


def test_padded_rows_of_a_graph_read_nothing(make_llm):
    """Their block tables name blocks that do not exist, all others hold no number."""
    llm = make_llm(max_num_seqs=8, attention_backend="flash_attn")
    runner = llm.engine.runner
    runner.kv_cache.normal_()
    batch = decode_batch(runner, random_lengths(5))
    want = logits_of(runner, batch, eager=True)
    used = {block for seq in batch.seqs for block in seq.block_table}
    unused = [block for block in range(runner.num_kvcache_blocks) if block not in used]
    runner.kv_cache[:, :, unused] = torch.nan
    with torch.inference_mode():  # where the buffers were made
        runner.buffers.block_tables.fill_(torch.iinfo(torch.int32).max)
    got = logits_of(runner, batch)
    assert relative(got, want) < NOISE
    assert runner.buffers.hidden_states[:8].isfinite().all()


@pytest.mark.parametrize(
    ("options", "before"), [({}, []), ({"max_num_batched_tokens": 130}, []), ({}, [600])]
)
def test_logits_of_prefills(make_llm, options, before):
    """A whole prompt, its chunks, and the rest behind a prefix hit, against our whole prompt."""
    (tokens,) = prompts([900])
    _, ours = run(make_llm(), [tokens], 1)
    flash = make_llm(attention_backend="flash_attn", **options)
    _, theirs = run(flash, [*(tokens[:n] for n in before), tokens], 1, one_by_one=True)
    got, want = theirs[f"request-{len(before)}", 900], ours["request-0", 900]
    assert relative(got, want) < NOISE


@pytest.mark.parametrize("eager", [False, True])
def test_greedy_tokens(make_llm, eager):
    """Prompts of all kinds at once, on a poisoned cache; a tie may be broken the other way."""
    texts, count = prompts([1, 5, 100, 257, 700, 64]), 20
    wanted, ours = run(make_llm(), texts, count)
    flash = make_llm(attention_backend="flash_attn", enforce_eager=eager)
    tokens, theirs = run(flash, texts, count)
    assert [len(row) for row in tokens] == [count] * len(texts)
    assert all(logits.isfinite().all() for logits in theirs.values())
    seen = 0
    for i, text in enumerate(texts):
        for n in range(count):
            if tokens[i][:n] != wanted[i][:n]:
                break  # from here on the two continue different texts
            want = ours[f"request-{i}", len(text) + n]
            assert relative(theirs[f"request-{i}", len(text) + n], want) < NOISE
            best, second = want.topk(2).values
            if best - second > CLEAR * want.std():
                assert tokens[i][n] == wanted[i][n]
                seen += 1
    assert seen > 30


@pytest.mark.parametrize("size", [16, 128])
def test_block_sizes_that_the_package_cannot_read_are_refused(make_llm, size):
    with pytest.raises(ConfigError, match=f"kvcache_block_size={size} is not a multiple of 256"):
        make_llm(attention_backend="flash_attn", kvcache_block_size=size)


def test_larger_blocks(make_llm):
    texts = prompts([600, 5])
    _, ours = run(make_llm(), texts, 2)
    llm = make_llm(attention_backend="flash_attn", kvcache_block_size=512, num_kvcache_blocks=60)
    _, theirs = run(llm, texts, 2)
    for i, text in enumerate(texts):
        key = f"request-{i}", len(text)
        assert relative(theirs[key], ours[key]) < NOISE


def test_doctor_knows_it():
    attention = doctor.examine()["attention"]
    assert attention["backend"] == "triton"  # flash_attn is taken only when asked for
    assert attention["others"]["flash_attn"] == "available"
