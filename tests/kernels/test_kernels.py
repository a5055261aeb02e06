"""Every kernel against its torch reference, at sizes that no tile divides."""

import dataclasses

import pytest
import torch
from kernels.conftest import reference_attend

from nanoengine.attention import reference
from nanoengine.engine import cuda_graph
from nanoengine.engine.sampling_graph import SamplingBuffers, stage_sampling
from nanoengine.kernels import order, products
from nanoengine.kernels.capability import Capability, detect
from nanoengine.kernels.gated import gated_linear
from nanoengine.kernels.gpu import ORDER_ABOVE, GpuKernels
from nanoengine.layers import rotary, sampler
from nanoengine.layers.activation import silu_and_mul

large = pytest.mark.skipif(not torch.cuda.is_available(), reason="slow in the interpreter")


@pytest.fixture
def kernels(arena):
    return GpuKernels(detect(arena.device))


def norm(x, gain, eps):
    return torch.nn.functional.rms_norm(x.float(), x.shape[-1:], gain.float(), eps)


@pytest.mark.parametrize(("rows", "size"), [(1, 16), (3, 80), (5, 1024)])
def test_rms_norm(arena, kernels, rows, size):
    x, gain = arena.randn(rows, size), arena.randn(size)
    arena.close(kernels.rms_norm(x, gain, 1e-6), norm(x, gain, 1e-6))


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_add_rms_norm_sums_parts(arena, kernels, parts):
    residual, gain = arena.randn(5, 72), arena.randn(72)
    x = arena.randn(5, 72) if parts == 0 else arena.randn(parts, 5, 72).float()
    before = x.clone(), residual.clone()
    y, total = kernels.add_rms_norm(x, residual, gain, 1e-6)
    want = residual.float() + (x.float() if parts == 0 else x.sum(0))
    arena.close(total, want)
    arena.close(y, norm(want, gain, 1e-6))
    assert torch.equal(x, before[0])
    assert torch.equal(residual, before[1])
    assert y.dtype == total.dtype == arena.dtype


@pytest.mark.parametrize(("rows", "size"), [(1, 8), (7, 1100), (3, 3072)])
def test_silu_and_mul(arena, kernels, rows, size):
    x = arena.randn(rows, 2 * size)
    arena.close(kernels.silu_and_mul(x), silu_and_mul(x.float()))


@pytest.mark.parametrize(("heads", "dim"), [(1, 8), (3, 80), (8, 128)])
def test_store_kvcache_writes_its_slots_only(arena, kernels, heads, dim):
    wide = arena.randn(6, 3 * heads, dim)  # k and v are slices of a wider row
    k, v = wide[:, heads : 2 * heads], wide[:, 2 * heads :]
    got = [torch.full((5, 4, heads, dim), 7.0).to(k) for _ in range(2)]
    want = [x.clone() for x in got]
    slots = torch.tensor([19, -1, 0, 7, -1, 12], dtype=torch.int32, device=k.device)
    kernels.store_kvcache(k, v, *got, slots)
    reference.store_kvcache(k, v, *want, slots)
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "qk_norm", "parts"),
    [(4, 2, 16, True, 1), (3, 1, 80, False, 3), (16, 8, 128, True, 2), (16, 8, 128, True, 1)],
)
def test_rotate_and_store(arena, kernels, heads, kv_heads, dim, qk_norm, parts):
    n, width = 5, (heads + 2 * kv_heads) * dim
    qkv = arena.randn(parts, n, width).float() if parts > 1 else arena.randn(n, width)
    gains = (arena.randn(dim), arena.randn(dim)) if qk_norm else None
    table = rotary.RotaryEmbedding(dim, 64, 1e4, None).to(arena.device)
    cos_sin = table(torch.tensor([0, 3, 63, 7, 1], device=arena.device))
    slots = torch.tensor([9, 0, -1, 11, 4], dtype=torch.int32, device=arena.device)
    caches = tuple(torch.zeros(3, 4, kv_heads, dim).to(gains[0] if gains else arena.randn(1))
                   for _ in range(2))  # fmt: skip
    whole = (qkv.sum(0) if parts > 1 else qkv.float()).view(n, -1, dim)
    q, k, v = kernels.rotate_and_store(
        qkv.clone(), gains, 1e-6, cos_sin, slots, caches, (heads, kv_heads, dim), arena.dtype
    )
    want = list(whole.split((heads, kv_heads, kv_heads), 1))
    if gains:
        want[:2] = (norm(x, gain, 1e-6) for x, gain in zip(want, gains, strict=False))
    want[:2] = (rotary.apply_rotary(x, *cos_sin) for x in want[:2])
    arena.close(q, want[0])
    arena.close(k, want[1])
    arena.close(v, want[2])
    expected = [torch.zeros_like(cache, dtype=torch.float32) for cache in caches]
    reference.store_kvcache(want[1], want[2], *expected, slots)
    for got, cache in zip(caches, expected, strict=True):
        arena.close(got, cache)
        assert torch.equal(got == 0, cache == 0)  # nothing else was written


@pytest.mark.parametrize("split", [1, 2, 8])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "block_size"),
    [(4, 2, 16, 4), (5, 1, 80, 16), (4, 4, 64, 256), pytest.param(16, 8, 128, 256, marks=large)],
)
def test_decode_attention(arena, kernels, make_paged, heads, kv_heads, dim, block_size, split):
    lengths = [1, 0, 37, 64, 300 if block_size < 64 else 900, 129]
    batch = make_paged(arena, lengths, None, heads, kv_heads, dim, block_size)
    # the number of multiprocessors decides into how many runs a sequence is split
    sms = split * len(lengths) * kv_heads // 4 + 1 if split > 1 else 0
    narrow = GpuKernels(dataclasses.replace(kernels.device, sms=sms))
    got = narrow.attend(*batch.args, batch.context, batch.scale)
    arena.close(got, reference_attend(batch))
    assert not got[1].any()  # a padded row


@pytest.mark.parametrize("rows", [1, 2, 17, 33, 70])
@pytest.mark.parametrize(("outputs", "inputs"), [(48, 80), (200, 1024)])
def test_linear(arena, kernels, rows, outputs, inputs):
    x, weight = arena.randn(rows, inputs), arena.randn(outputs, inputs, std=inputs**-0.5)
    want = x.float() @ weight.float().t()
    arena.close(kernels.linear(x, weight), want)
    got = kernels.linear(x, weight, parts=True)
    arena.close(got.sum(0) if got.dim() == 3 else got, want)
    gate, up = want.chunk(2, 1)
    arena.close(kernels.linear_silu(x, weight), torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize(
    ("rows", "kind"), [(1, "gemv"), (8, "skinny"), (64, "split_k"), (130, "split_k")]
)
def test_every_plan_is_right(arena, kernels, rows, kind):
    if arena.device.type == "cuda" and arena.dtype == torch.float32:
        pytest.skip("on a GPU float32 products are the library's")
    # a GPU takes the sizes of Qwen3-0.6B, the interpreter smaller ones with the same plans
    shapes = [(1024, 2048, False), (1024, 3072, False), (6144, 1024, True)]
    if arena.device.type == "cpu":
        shapes = [(192, 520, False), (96, 768, True)]
    for outputs, inputs, gated in shapes:
        plan = products.plan_linear(rows, outputs, inputs, not gated, gated, kernels.device)
        if gated and kind == "split_k":
            kind = "gated" if rows <= 64 else "library"
        assert plan.kind == kind
        if plan is products.LIBRARY:
            continue
        x, weight = arena.randn(rows, inputs), arena.randn(outputs, inputs, std=inputs**-0.5)
        got = products.linear(x, weight, plan, gated, kernels.options)
        want = x.float() @ weight.float().t()
        if gated:
            gate, up = want.chunk(2, 1)
            want = torch.nn.functional.silu(gate) * up
        arena.close(got.sum(0) if got.dim() == 3 else got, want)


@pytest.mark.parametrize(
    ("rows", "block_m", "block_n"),
    [(9, 16, 64), (31, 32, 64), (64, 64, 64), (130, 128, 128), (2100, 128, 128)],
)
def test_gate_and_up_in_one_kernel(arena, kernels, rows, block_m, block_n):
    """Tiles that stick out below and to the right, and more row tiles than a group."""
    if arena.device.type == "cuda" and arena.dtype == torch.float32:
        pytest.skip("on a GPU float32 products are the library's")
    x, weight = arena.randn(rows, 72), arena.randn(2 * 200, 72, std=0.1)
    gate, up = (x.float() @ weight.float().t()).chunk(2, 1)
    got = gated_linear(x, weight, block_m, block_n, kernels.options)
    arena.close(got, torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize(
    ("rows", "outputs", "inputs", "plan"),
    [(16, 2560, 4096, ("split_k", 8, 16, 64)), (32, 6144, 2560, ("split_k", 4, 32, 64)),
     (64, 2560, 4096, ("split_k", 3, 64, 64)), (64, 6144, 2560, products.LIBRARY),
     (64, 1024, 3072, ("split_k", 8, 64, 64)), (128, 1024, 2048, ("split_k", 4, 64, 64)),
     (64, 5120, 12800, ("split_k", 3, 64, 128)), (64, 5120, 4096, products.LIBRARY)],
)  # fmt: skip
def test_split_products_fill_a_wave(rows, outputs, inputs, plan):
    """The shapes of Qwen3-4B, 0.6B and half a 32B on an H200."""
    assert products.plan_linear(rows, outputs, inputs, True, False, Capability()) == plan


def test_wide_tiles(arena, kernels):
    if arena.device.type == "cuda" and arena.dtype == torch.float32:
        pytest.skip("on a GPU float32 products are the library's")
    x, weight = arena.randn(37, 1000), arena.randn(200, 1000, std=0.1)
    got = products.linear(x, weight, products.Plan("split_k", 3, 64, 128), False, kernels.options)
    assert got.shape == (3, 37, 200)
    arena.close(got.sum(0), x.float() @ weight.float().t())


@pytest.mark.parametrize(
    ("rows", "inputs", "plan"),
    [(16, 1024, ("skinny", 1, 16, 32)), (16, 2560, ("gated", 1, 16, 64)),
     (64, 2560, ("gated", 1, 64, 64)), (16, 4096, ("gated", 1, 16, 64)),
     (65, 1024, products.LIBRARY), (1024, 4096, ("gated", 1, 128, 128))],
)  # fmt: skip
def test_which_rows_take_the_gated_kernel(rows, inputs, plan):
    assert products.plan_linear(rows, 6 * inputs, inputs, False, True, Capability()) == plan


def test_guards_leave_products_to_the_library(kernels):
    old = dataclasses.replace(kernels.device, tma=False, shared_memory=64 * 1024)
    plan = products.plan_linear(64, 1024, 2048, True, False, old)
    assert plan is products.LIBRARY
    assert products.plan_linear(8, 1024, 2048, True, False, old) is products.LIBRARY


@pytest.mark.parametrize("vocab", [10, 4096, 9001])
def test_sampler_agrees_with_the_reference(arena, kernels, vocab):
    rows = 64
    logits = arena.randn(rows, vocab, std=3.0)
    logits[5] = -torch.inf
    logits[5, vocab // 2] = 1.0  # only one token can be chosen
    logits[6, -1] = logits[6, 3] = 50.0  # a tie: the first wins when greedy
    temperatures = torch.linspace(0.0, 2.0, rows, device=arena.device)
    temperatures[5:8] = torch.tensor([0.7, 0.0, 0.0])
    noise = torch.rand(rows).to(arena.device)
    noise[10], noise[11] = 0.0, 1.0 - 2.0**-24
    table = torch.full((rows + 1,), -7, device=arena.device)
    where = torch.arange(rows, device=arena.device)
    where[9] = -1
    got = kernels.sample(logits, temperatures, noise, where, table, sampler.GREEDY_BELOW)
    want = sampler.sample(logits.float(), temperatures, noise)
    cold = temperatures < sampler.GREEDY_BELOW
    assert torch.equal(got[cold], logits[cold].float().cpu().argmax(-1).to(got))
    assert int(got[5]) == vocab // 2
    # a number that falls on a border may go either way in another order of summation
    different = (got != want).nonzero().flatten().tolist()
    probs = torch.softmax(logits.double() / temperatures.clamp(min=1e-9)[:, None], -1).cumsum(-1)
    for row in different:
        low, high = sorted((int(got[row]), int(want[row])))
        assert probs[row, high - 1] - probs[row, low] < 1e-4
        assert abs(float(probs[row, low]) - float(noise[row])) < 1e-4
    assert len(different) <= 3
    kept = [i for i in range(rows) if i != 9]
    assert torch.equal(table[kept], got[kept])
    assert table[9] == table[rows] == -7


@pytest.mark.parametrize("rows", [1, 16, 37, 600])
def test_longest_first(arena, rows):
    lengths = torch.randint(0, 30, (rows,), dtype=torch.int32).to(arena.device)
    want = torch.argsort(lengths, descending=True, stable=True)
    assert torch.equal(order.longest_first(lengths).long(), want)


def test_decode_attention_in_any_order(arena, kernels, make_paged):
    lengths = [3 + 7 * (i % 5) for i in range(ORDER_ABOVE + 3)]
    batch = make_paged(arena, lengths, None, 2, 1, 16, 8)
    got = kernels.attend(*batch.args, batch.context, batch.scale)
    arena.close(got, reference_attend(batch))


def test_resolve_placeholders(arena, kernels):
    table = torch.arange(100, 400, device=arena.device)
    ids = torch.tensor([5, -1, 0, -300, -2] * 70, device=arena.device)
    want = torch.where(ids < 0, table[(-ids - 1).clamp(min=0)], ids)
    assert torch.equal(kernels.resolve_placeholders(ids, table), want)


@pytest.mark.parametrize("samples", [False, True])
@pytest.mark.parametrize(("batch", "width"), [(1, 1), (3, 70)])
def test_stage_decode_agrees_with_its_references(arena, kernels, make_paged, batch, width, samples):
    lengths = [2 * width + i for i in range(batch)]
    context = make_paged(arena, lengths, None, 2, 1, 16, 4).context
    ids, positions = torch.randint(0, 99, (2, batch)).to(arena.device)
    ids[-1] = -3  # a placeholder
    last_token = torch.tensor([5, 6, 1234, 8], device=arena.device)
    sampling = torch.rand(batch), torch.rand(batch), torch.arange(7, 7 + batch)
    sampling = tuple(x.to(arena.device) for x in sampling) if samples else ()
    both = []
    for staged in (False, True):
        buffers = cuda_graph.GraphBuffers.allocate(8, 200, 4, arena.dtype, arena.device)
        buffers.slot_mapping.fill_(77)
        buffers.context_lens.fill_(77)
        own = SamplingBuffers.allocate(8, arena.device)
        for tensor in own.tensors:
            tensor.fill_(77)
        names = ("input_ids", "positions", "slot_mapping", "context_lens", "block_tables")
        target = tuple(getattr(buffers, name) for name in names)
        to_sampling = own.tensors if samples else ()
        if staged:
            source = (ids, positions, context.slot_mapping, context.context_lens,
                      context.block_tables, *sampling)  # fmt: skip
            kernels.stage_decode(source, target + to_sampling, 4, last_token)
        else:
            known = torch.where(ids < 0, 1234, ids)
            cuda_graph.stage_inputs(buffers, known, positions, context, 4)
            stage_sampling(sampling, to_sampling, 4)
        both.append([*target, *own.tensors])
    for got, want in zip(*both, strict=True):
        assert torch.equal(got, want)
