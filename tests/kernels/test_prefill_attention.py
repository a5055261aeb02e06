"""Prefill attention against its torch reference: lengths, history, heads that share a kv head."""

import dataclasses

import pytest
import torch
from kernels.conftest import reference_attend

from nanoengine.kernels import prefill_attention
from nanoengine.kernels.capability import detect
from nanoengine.kernels.gpu import GpuKernels
from nanoengine.kernels.prefill_attention import PrefillPlan

large = pytest.mark.skipif(not torch.cuda.is_available(), reason="slow in the interpreter")

NEW = [1, 70, 64, 3, 129]
HISTORY = [0, 5, 64, 100, 17]


@pytest.fixture
def kernels(arena):
    return GpuKernels(detect(arena.device))


def compare(arena, kernels, batch):
    got = kernels.attend(*batch.args, batch.context, batch.scale)
    arena.close(got, reference_attend(batch))


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "block_size"),
                         [(4, 2, 16, 4), (2, 1, 80, 16), (2, 2, 128, 64), (4, 1, 24, 256),
                          pytest.param(16, 8, 128, 256, marks=large),
                          pytest.param(12, 4, 128, 256, marks=large)])  # fmt: skip
@pytest.mark.parametrize("history", [None, HISTORY])
@pytest.mark.parametrize("old", [False, True])
def test_prefill_attention(
    arena, kernels, make_paged, heads, kv_heads, dim, block_size, history, old
):
    if old:  # smaller tiles
        kernels = GpuKernels(dataclasses.replace(kernels.device, tma=False, shared_memory=65_536))
    batch = make_paged(arena, NEW, history, heads, kv_heads, dim, block_size, prefill=True)
    compare(arena, kernels, batch)


@pytest.mark.parametrize("group", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("history", [None, [7, 0, 33]])
def test_heads_that_share_a_kv_head(arena, kernels, make_paged, group, history):
    """Two kv heads: a tile of the first one's queries must not read the second one's keys."""
    batch = make_paged(arena, [2, 31, 65], history, 2 * group, 2, 16, 16, prefill=True)
    compare(arena, kernels, batch)


@pytest.mark.parametrize(
    ("pack", "rows", "keys"),
    [(1, 128, 32), (2, 32, 64), (4, 64, 32), (4, 128, 128), (8, 128, 64), (8, 16, 16)],
)
@pytest.mark.parametrize("history", [None, [7, 0, 33]])
def test_every_launch_shape_is_right(
    arena, kernels, make_paged, monkeypatch, pack, rows, keys, history
):
    """Fewer queries a tile than keys and more, down to two queries of eight heads."""
    plan = PrefillPlan(pack, rows, keys, 4, 2, None)
    monkeypatch.setattr(prefill_attention, "plan_prefill", lambda *_: plan)
    batch = make_paged(arena, [2, 31, 65], history, 16, 2, 16, 32, prefill=True)
    compare(arena, kernels, batch)


def test_keys_and_values_may_be_slices_of_wider_rows(arena, kernels, make_paged):
    """As the model has them, side by side in one product; and with rows of different lengths."""
    batch = make_paged(arena, [3, 40], None, 4, 2, 16, 16, prefill=True)
    want = reference_attend(batch)
    q, k, v, *caches = batch.args
    row = torch.cat((q, k, v), 1)
    q, k, v = row.split((4, 2, 2), 1)
    for values in (v, v.contiguous(), torch.cat((v, v), 1)[:, :2]):
        got = kernels.attend(q, k, values, *caches, batch.context, batch.scale)
        arena.close(got, want)


def test_what_the_plan_promises(arena):
    """Packed heads share a kv head, and a tile's queries are a power of two."""
    for device in (detect(arena.device), dataclasses.replace(detect(arena.device), tma=False)):
        for shared in (65_536, 232_448):
            chip = dataclasses.replace(device, shared_memory=shared)
            for group in range(1, 17):
                for key_bytes in (32, 256, 512, 1024):
                    plan = prefill_attention.plan_prefill(group, key_bytes, chip)
                    assert group % plan.pack == 0
                    assert plan.rows % plan.pack == 0
                    assert plan.rows.bit_count() == plan.keys.bit_count() == 1
                    # q, and K and V of every stage
                    needed = (plan.rows + 2 * plan.stages * plan.keys) * key_bytes
                    assert needed <= shared or key_bytes > 256
