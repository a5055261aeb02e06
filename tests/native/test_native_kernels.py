"""Every C kernel against its torch reference, at sizes that fill no register and no tile."""

import pytest
import torch

from nanoengine.attention import reference
from nanoengine.context import Context
from nanoengine.errors import EngineError
from nanoengine.kernels.native import attend
from nanoengine.kernels.native.cpu import FEW_ROWS
from nanoengine.layers import rotary, sampler
from nanoengine.layers.activation import silu_and_mul
from nanoengine.layers.layernorm import rms_norm

THREADS = (1, 2)


@pytest.fixture(params=THREADS, autouse=True)
def threads(request):
    """Both with and without other threads; work is shared only from some size on."""
    torch.manual_seed(0)
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(1)


def close(got, want, tolerance=3e-6):
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    assert torch.isfinite(got).all()
    assert (got - want).norm() <= tolerance * want.norm().clamp(min=1e-6)


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


# -- rows and products ---------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (1, 16), (3, 80), (33, 1027)])
def test_norms(kernels, rows, size):
    x, residual, gain = torch.randn(rows, size), torch.randn(rows, size), torch.randn(size)
    before = x.clone(), residual.clone()
    close(kernels.rms_norm(x, gain, 1e-6), rms_norm(x, gain, 1e-6))
    y, total = kernels.add_rms_norm(x, residual, gain, 1e-2)
    assert torch.equal(total, x + residual)
    close(y, rms_norm(x + residual, gain, 1e-2))
    assert torch.equal(x, before[0])
    assert torch.equal(residual, before[1])


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (7, 13), (40, 1100)])
def test_silu_and_mul(kernels, rows, size):
    x = torch.randn(rows, 2 * size) * 3
    close(kernels.silu_and_mul(x), silu_and_mul(x))


def test_silu_of_extremes(kernels):
    x = torch.tensor([[-1e30, -100.0, -87.5, 0.0, 87.5, 1e30] + [1.0] * 6])
    torch.testing.assert_close(kernels.silu_and_mul(x), silu_and_mul(x), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 11, 32, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (5, 7), (16, 16), (70, 131), (513, 384)])
def test_linear(kernels, rows, outputs, inputs):
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    close(kernels.linear(x, weight), torch.nn.functional.linear(x, weight))


def test_a_row_is_the_same_in_every_batch(kernels):
    x, weight = torch.randn(13, 200), torch.randn(50, 200)
    whole = kernels.linear(x, weight)
    for i in range(13):
        assert torch.equal(kernels.linear(x[i : i + 1], weight)[0], whole[i])


def test_linear_silu(kernels):
    x, weight = torch.randn(5, 40), torch.randn(60, 40)
    close(kernels.linear_silu(x, weight), silu_and_mul(torch.nn.functional.linear(x, weight)))


def test_what_no_kernel_expects_is_left_to_torch(kernels):
    x, weight = torch.randn(40, 3).T, torch.randn(8, 40)
    close(kernels.linear(x, weight), torch.nn.functional.linear(x, weight))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        kernels.linear(torch.randn(3, 41), weight)


# -- q, k and v ----------------------------------------------------------------------------------


def rotated(qkv, gains, eps, cos_sin, heads):
    q, k, v = qkv.view(len(qkv), -1, heads[2]).split_with_sizes([*heads[:2], heads[1]], 1)
    if gains is not None:
        q, k = rms_norm(q, gains[0], eps), rms_norm(k, gains[1], eps)
    return rotary.apply_rotary(q, *cos_sin), rotary.apply_rotary(k, *cos_sin), v


@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize(
    ("tokens", "heads"), [(1, (1, 1, 8)), (6, (3, 3, 24)), (5, (4, 2, 80)), (40, (8, 2, 32))]
)
def test_rotate_and_store(kernels, tokens, heads, normed):
    table = rotary.RotaryEmbedding(heads[2], 64, 1e4, None)
    cos_sin = table(torch.randint(0, 64, (tokens,)))
    qkv = torch.randn(tokens, (heads[0] + 2 * heads[1]) * heads[2])
    gains = (torch.randn(heads[2]), torch.randn(heads[2])) if normed else None
    slots = torch.randperm(64)[:tokens].int()
    slots[tokens // 2] = -1 if tokens > 1 else 5
    caches = [torch.full((16, 4, *heads[1:]), torch.nan) for _ in "kv"]
    expected = [cache.clone() for cache in caches]
    want = rotated(qkv.clone(), gains, 1e-6, cos_sin, heads)
    reference.store_kvcache(want[1].contiguous(), want[2].contiguous(), *expected, slots)
    got = kernels.rotate_and_store(
        qkv, gains, 1e-6, cos_sin, slots, tuple(caches), heads, torch.float32
    )
    for a, b in zip(got, want, strict=True):
        close(a, b)
    for a, b in zip(caches, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_a_warm_up_has_no_cache(kernels):
    heads = (4, 2, 8)
    cos_sin = rotary.RotaryEmbedding(8, 64, 1e4, None)(torch.arange(3))
    qkv = torch.randn(3, 64)
    want = rotated(qkv.clone(), None, 0.0, cos_sin, heads)
    none = torch.empty(0)
    got = kernels.rotate_and_store(
        qkv, None, 0.0, cos_sin, ints([-1] * 3), (none, none), heads, torch.float32
    )
    for a, b in zip(got, want, strict=True):
        close(a, b)


@pytest.mark.parametrize(
    ("slots", "positions", "words"),
    [
        (ints([0, 16, 1]), 3, "slot 16 is beyond the KV cache of 16 slots"),
        (ints([0, 2**31 - 1, 1]), 3, "slot 2147483647 is beyond"),
        (ints([0, 1]), 3, r"slot_mapping is torch.int32 \[2\], expected int32 \[3\]"),
        (torch.tensor([0, 1, 2]), 3, "slot_mapping is torch.int64"),
        (ints([0, 1, 2]), 2, "2 positions for 3 tokens"),
    ],
)
def test_a_wrong_slot_is_an_error_and_writes_nothing(kernels, slots, positions, words):
    heads = (4, 2, 8)
    cos_sin = rotary.RotaryEmbedding(8, 64, 1e4, None)(torch.arange(positions))
    caches = [torch.zeros(4, 4, 2, 8) for _ in "kv"]
    with pytest.raises(EngineError, match=words):
        kernels.rotate_and_store(
            torch.randn(3, 64), None, 0.0, cos_sin, slots, tuple(caches), heads, torch.float32
        )
    assert not any(cache.any() for cache in caches)


@pytest.mark.parametrize(
    ("k_shape", "v_shape"),
    [((4, 4, 2, 8), (2, 4, 2, 8)), ((4, 4, 1, 8), (4, 4, 1, 8)), ((4, 4, 2, 4), (4, 4, 2, 4))],
)
def test_a_cache_of_another_shape_is_the_references_error(kernels, k_shape, v_shape):
    """Memory beside the caches stays as it was: they are slices of larger tensors."""
    around = [torch.zeros(64, *shape[1:]) for shape in (k_shape, v_shape)]
    caches = tuple(x[8 : 8 + n[0]] for x, n in zip(around, (k_shape, v_shape), strict=True))
    cos_sin = rotary.RotaryEmbedding(8, 64, 1e4, None)(torch.arange(3))
    with pytest.raises((EngineError, IndexError, RuntimeError)):
        kernels.rotate_and_store(
            torch.randn(3, 64), None, 0.0, cos_sin, ints([0, 15, 9]), caches, (4, 2, 8),
            torch.float32,
        )  # fmt: skip
    for x, cache in zip(around, caches, strict=True):
        cache.zero_()
        assert not x.any()


def test_a_cache_with_gaps_is_stored_by_the_reference(kernels):
    heads, slots = (4, 2, 8), ints([0, 15, 9])
    cos_sin = rotary.RotaryEmbedding(8, 64, 1e4, None)(torch.arange(3))
    qkv = torch.randn(3, 64)
    want = rotated(qkv.clone(), None, 0.0, cos_sin, heads)
    gaps = [torch.zeros(4, 4, 2, 16)[..., :8] for _ in "kv"]
    try:
        kernels.rotate_and_store(qkv, None, 0.0, cos_sin, slots, tuple(gaps), heads, torch.float32)
    except RuntimeError:  # or refused by torch, which is as good
        return
    close(gaps[0].reshape(-1, 2, 8)[slots.long()], want[1])


# -- attention -----------------------------------------------------------------------------------


def paged(new, totals, heads, kv_heads, dim, block_size, prefill):
    """(q, k, v, k_cache, v_cache, context, scale); unused slots of the cache are NaN."""
    tokens = sum(new)
    # q, k and v are slices of a wider row, as the layers give them
    q, k, v = torch.randn(tokens, heads + 2 * kv_heads, dim).split_with_sizes(
        [heads, kv_heads, kv_heads], 1
    )
    needed = [-(-total // block_size) for total in totals]
    order = torch.randperm(sum(needed) + 2).int()
    tables = torch.full((len(new), max(*needed, 1) + 1), -1, dtype=torch.int32)
    caches = [torch.full((len(order), block_size, kv_heads, dim), torch.nan) for _ in "kv"]
    for i, (count, total) in enumerate(zip(needed, totals, strict=True)):
        tables[i, :count], order = order[:count], order[count:]
        for cache in caches:
            flat = torch.full((count * block_size, kv_heads, dim), torch.nan)
            flat[:total] = torch.randn(total, kv_heads, dim)
            cache[tables[i, :count].long()] = flat.view(count, block_size, kv_heads, dim)
    slots = ints([0] * tokens)
    if not prefill:
        context = Context(False, slots, context_lens=ints(totals), block_tables=tables)
        return q, k, v, *caches, context, dim**-0.5
    ends = [ints([sum(x[:i]) for i in range(len(x) + 1)]) for x in (new, totals)]
    context = Context(
        True, slots, ends[0], ends[1], max(new), max(totals),
        block_tables=None if new == totals else tables,
    )  # fmt: skip
    return q, k, v, *caches, context, dim**-0.5


GROUPS = [(1, 1, 8), (4, 4, 24), (4, 2, 32), (8, 2, 80), (14, 1, 20)]


@pytest.mark.parametrize("block_size", [4, 16, 256])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), GROUPS)
def test_decode(kernels, heads, kv_heads, dim, block_size):
    lengths = [1, 2, 15, 16, 17, 64, 65, 300, 0]
    args = paged([1] * 9, lengths, heads, kv_heads, dim, block_size, prefill=False)
    got = kernels.attend(*args)
    close(got, reference.attend(*args))
    assert not got[-1].any()


@pytest.mark.parametrize("history", [0, 1, 70])
@pytest.mark.parametrize("block_size", [4, 16, 128])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), GROUPS)
def test_prefill(kernels, heads, kv_heads, dim, block_size, history):
    new = [1, 2, 12, 13, 40, 65]
    totals = [n + history * (i % 2) for i, n in enumerate(new)]
    args = paged(new, totals, heads, kv_heads, dim, block_size, prefill=True)
    close(kernels.attend(*args), reference.attend(*args))


def test_scores_far_apart(kernels):
    q, k, v, k_cache, v_cache, context, _ = paged([1], [200], 2, 1, 16, 16, prefill=False)
    args = (q, k, v, k_cache, v_cache, context, 40.0)
    close(kernels.attend(*args), reference.attend(*args), 1e-4)


def changed(context, **fields):
    from dataclasses import replace

    return replace(context, **fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"block_tables": ints([[0, 1], [99, -1]])}, "block 99, the KV cache has blocks 0.."),
        ({"block_tables": ints([[0, -1], [1, -1]])}, "block -1"),
        ({"context_lens": ints([99, 1])}, "position 98 needs block 24 of a sequence"),
    ],
)
def test_a_wrong_block_is_the_references_error(kernels, fields, words):
    *args, context, scale = paged([1, 1], [7, 3], 2, 1, 8, 4, prefill=False)
    with pytest.raises(EngineError, match=words):
        kernels.attend(*args, changed(context, **fields), scale)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cu_seqlens_q": ints([0, 2, 4])}, "do not describe 5 queries"),
        ({"cu_seqlens_k": ints([0, 1, 8])}, "has 2 queries and 1 keys: too few"),
        ({"max_seqlen_q": 2}, "a kernel would stop early"),
        ({"max_seqlen_k": 5}, "a kernel would stop early"),
        ({"block_tables": None}, "4 cached tokens but block_tables is None"),
        ({"block_tables": ints([[0, 1, 77], [2, 3, -1]])}, "block 77"),
        ({"block_tables": ints([[0], [1]])}, "block_tables has 1 columns"),
    ],
)
def test_wrong_lengths_are_the_references_error(kernels, fields, words):
    *args, context, scale = paged([2, 3], [6, 9], 2, 1, 8, 4, prefill=True)
    if "77" in words:
        fields = {**fields, "cu_seqlens_k": ints([0, 9, 15]), "max_seqlen_k": 9}
    with pytest.raises(EngineError, match=words):
        kernels.attend(*args, changed(context, **fields), scale)


def test_long_prefills_are_left_to_the_reference(kernels, monkeypatch):
    args = paged([9, 3], [9, 3], 2, 1, 8, 4, prefill=True)
    monkeypatch.setattr(attend, "LONG", 8)
    assert torch.equal(kernels.attend(*args), reference.attend(*args))


# -- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab", [1, 7, 256, 4096, 5001])
def test_sample(kernels, vocab):
    batch = 64
    logits = torch.randn(batch, vocab + 3)[:, :vocab] * 4  # a slice of longer rows
    if vocab > 1:
        logits[:, torch.randperm(vocab)[: vocab // 2]] = -torch.inf
    temperatures = torch.rand(batch) * 2
    temperatures[::5] = 0.0
    noise, rows = torch.rand(batch), torch.randperm(batch + 1)[:batch]
    rows[0], noise[1], noise[2] = -1, 0.0, 1 - 2**-24
    last_token = torch.full((batch + 1,), -7)
    want = sampler.sample(logits, temperatures, noise)
    got = kernels.sample(logits, temperatures, noise, rows, last_token, sampler.GREEDY_BELOW)
    # a number that falls on a border to the last bit may go either way
    assert (got != want).sum() <= 1
    assert torch.isfinite(logits.gather(1, got[:, None])).all()
    assert torch.equal(last_token[rows[1:]], got[1:])
    assert int((last_token == -7).sum()) == 2


def test_the_first_of_equal_logits_is_greedy(kernels):
    logits = torch.zeros(2, 50)
    logits[1, [7, 30]] = 3.0
    zeros, rows = torch.zeros(2), torch.tensor([0, 1])
    got = kernels.sample(logits, zeros, zeros, rows, torch.zeros(3, dtype=torch.int64), 1e-5)
    assert got.tolist() == [0, 7]


def test_placeholders(kernels):
    last_token = torch.tensor([10, 20, 30])
    got = kernels.resolve_placeholders(torch.tensor([5, -1, -3, 0]), last_token)
    assert got.tolist() == [5, 10, 30, 0]


def test_another_number_of_rows_than_sequences_is_an_error(kernels):
    """Lesson 06's usual mistake: the logits of all rows go to the sampler."""
    table = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(EngineError, match="300 rows of logits for 1 sequences"):
        kernels.sample(
            torch.zeros(300, 4), torch.zeros(1), torch.zeros(1), torch.tensor([0]), table, 1e-5
        )


def test_a_row_beyond_the_table_is_an_error(kernels):
    table = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(EngineError, match="row 3 is beyond the table of 3 newest tokens"):
        kernels.resolve_placeholders(torch.tensor([1, -4]), table)
    zeros = torch.zeros(2)
    with pytest.raises(EngineError, match="row 9 is beyond"):
        kernels.sample(torch.zeros(2, 4), zeros, zeros, torch.tensor([0, 9]), table, 1e-5)
    with pytest.raises(EngineError, match="row -5 is beyond"):
        kernels.sample(torch.zeros(2, 4), zeros, zeros, torch.tensor([0, -5]), table, 1e-5)
    assert not table.any()
