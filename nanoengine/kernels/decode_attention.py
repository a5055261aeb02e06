"""Decode attention: one query a sequence against its paged KV cache.

Reference: `attention.reference.attend`. Reading K and V is nearly all of the work, so everything
serves the memory:

- The query heads that share a kv head are packed into one program, so K and V are read once (GQA
  packing). The matrix unit wants 16 rows; with two heads a group 14 stay idle, and still it is
  the fastest way.
- With few sequences there are fewer programs than multiprocessors. Then a sequence is split into
  several runs of keys, whose partial results a second kernel merges (Flash-Decoding, 2023).
- A tile's block id is read one tile ahead. An address that waits for a load of the same iteration
  would make the compiler's software pipeline one tile deep, whatever `num_stages` says.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from nanoengine.kernels.capability import Capability
from nanoengine.kernels.pdl import start_next, wait
from nanoengine.kernels.sizes import next_power_of_2
from nanoengine.kernels.softmax import LOG2E, attend_tile, load_blocks, slots_of


@triton.jit
def _split_length(length, SPLITS: tl.constexpr, BN: tl.constexpr):
    """Keys a split: equal numbers of whole tiles. 641 keys, 4 splits, tiles of 64: 192."""
    return tl.maximum(tl.cdiv(tl.cdiv(length, BN), SPLITS), 1) * BN


@triton.jit(do_not_specialize=["table_stride"])
def _decode(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, table_ptr, length_ptr, order_ptr, table_stride,
    q_stride, scale_log2,
    KVH: tl.constexpr, G: tl.constexpr, BLOCK_G: tl.constexpr, D: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_SIZE: tl.constexpr, BN: tl.constexpr, SPLITS: tl.constexpr,
    ORDERED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (kv head, sequence, split): G query heads against the split's keys."""
    kv_head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start_next(PDL)
    if ORDERED:
        b = tl.load(order_ptr + b)
    b = b.to(tl.int64)
    length = tl.load(length_ptr + b)
    span = _split_length(length, SPLITS, BN)
    first, end = split * span, tl.minimum(split * span + span, length)
    table_ptr += b * table_stride
    key, d = tl.arange(0, BN), tl.arange(0, BLOCK_D)[None, :]
    blocks = load_blocks(table_ptr, first, key, end, BLOCK_SIZE, BN)
    wait(PDL)
    if (first >= end) & (split > 0):
        return
    g = tl.arange(0, BLOCK_G)
    head = kv_head * G + g
    row = b * q_stride + head[:, None] * D + d
    q = tl.load(q_ptr + row, mask=(g < G)[:, None] & (d < D), other=0.0)
    m = tl.full([BLOCK_G], -1e30, tl.float32)
    total = tl.zeros([BLOCK_G], tl.float32)
    acc = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
    for start in range(first, end, BN):
        tile = slots_of(blocks, start, key, BLOCK_SIZE)[:, None] * (KVH * D) + kv_head * D + d
        blocks = load_blocks(table_ptr, start + BN, key, end, BLOCK_SIZE, BN)
        live = start + key < end
        inside = live[:, None] & (d < D)
        k = tl.load(k_ptr + tile, mask=inside, other=0.0)
        v = tl.load(v_ptr + tile, mask=inside, other=0.0)
        m, total, acc = attend_tile(q, k, v, live[None, :], m, total, acc, scale_log2, MASKED=True)
    # a padded row has length 0: no key, total = 0, and zero comes out
    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    part = (b * KVH * G + head) * SPLITS + split
    out = acc.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + part[:, None] * D + d, out, mask=(g < G)[:, None] & (d < D))
    if SPLITS > 1:
        tl.store(lse_ptr + part, m + tl.log2(tl.where(total > 0, total, 1.0)), mask=g < G)


@triton.jit
def _merge(
    part_ptr, lse_ptr, out_ptr, length_ptr,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BN: tl.constexpr,
    SPLITS: tl.constexpr, BLOCK_S: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (head, sequence): average the splits' outputs, weighted by 2^(log-sum-exp).

    A kernel of its own takes 1.4 microseconds; letting the split that ends last do it (an atomic
    counter) took 3 to 7, a chain of dependent loads at the end of a kernel that was nearly done.
    """
    head, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    start_next(PDL)
    length = tl.load(length_ptr + b)
    split, d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)[None, :]
    ran = (split * _split_length(length, SPLITS, BN) < length) | (split == 0)
    ran = ran & (split < SPLITS)
    wait(PDL)
    part = (b * HEADS + head) * SPLITS + split
    lse = tl.load(lse_ptr + part, mask=ran, other=-1e30)
    weight = tl.exp2(lse - tl.max(lse, 0))
    weight = tl.where(ran, weight / tl.sum(tl.where(ran, weight, 0.0), 0), 0.0)
    inside = ran[:, None] & (d < D)
    values = tl.load(part_ptr + part[:, None] * D + d, mask=inside, other=0.0)
    out = tl.sum(values * weight[:, None], 0)
    column = tl.arange(0, BLOCK_D)
    out_row = out_ptr + (b * HEADS + head) * D + column
    tl.store(out_row, out.to(out_ptr.dtype.element_ty), mask=column < D)


class DecodePlan(NamedTuple):
    """Launch shape of `_decode`: splits a sequence, keys a tile, warps, pipeline stages."""

    splits: int
    tile: int
    warps: int
    stages: int


def plan_decode(batch: int, kv_heads: int, key_bytes: int, device: Capability) -> DecodePlan:
    """The launch shape for a batch size; a graph is captured with it, so lengths cannot matter.

    Split until four programs a multiprocessor exist, at most 32 splits: an H200 and 8 kv heads
    give 32 splits for one sequence, 8 for 8 sequences, 2 for 32 and 1 from 34 on. key_bytes: of
    one head's key, 256 for 128 components of bfloat16.
    """
    programs, splits = batch * kv_heads, 1
    while splits < 32 and 2 * splits * programs <= 4 * device.sms:
        splits *= 2
    tile, warps, stages = 64, 4, 3 if splits > 1 else 4
    if programs > 4 * device.sms:  # they come in waves: many small ones leave the chip fuller
        tile, warps, stages = 32, 2, 4
    if key_bytes > 256 or device.shared_memory < 160 * 1024:
        tile, stages = 32, 3  # K and V of a tile, twice, must fit into shared memory
    return DecodePlan(splits, tile, warps, stages)


def decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    device: Capability,
    options: dict[str, Any],
    order: torch.Tensor | None = None,
) -> torch.Tensor:
    """q, [b, heads, head_dim], against context_lens[i] cached tokens each; zero where that is 0.

    caches: [blocks, block_size, kv_heads, head_dim]; block_tables: [b, blocks] int32, rows may be
    longer apart than they are long; context_lens: [b] int32, the new token included; order: [b]
    int32, which sequence the programs take first (`order.longest_first`).
    """
    batch, heads, dim = q.shape
    q = q if q.stride()[1:] == (dim, 1) else q.contiguous()  # a row may be longer than its heads
    block_size, kv_heads = k_cache.shape[1:3]
    block_d = max(16, next_power_of_2(dim))
    plan = plan_decode(batch, kv_heads, block_d * k_cache.itemsize, device)
    out, group = q.new_empty(q.shape), heads // kv_heads
    parts, lse = out, out  # without splits the kernel writes its output at once
    if plan.splits > 1:
        parts = torch.empty(batch, heads, plan.splits, dim, dtype=torch.float32, device=q.device)
        lse = torch.empty(batch, heads, plan.splits, dtype=torch.float32, device=q.device)
    _decode[(kv_heads, batch, plan.splits)](
        q, k_cache, v_cache, parts, lse, block_tables, context_lens,
        context_lens if order is None else order, block_tables.stride(0), q.stride(0),
        scale * LOG2E, KVH=kv_heads, G=group, BLOCK_G=max(16, next_power_of_2(group)),
        D=dim, BLOCK_D=block_d, BLOCK_SIZE=block_size, BN=plan.tile, SPLITS=plan.splits,
        ORDERED=order is not None, num_warps=plan.warps, num_stages=plan.stages, **options,
    )  # fmt: skip
    if plan.splits > 1:
        _merge[(heads, batch)](
            parts, lse, out, context_lens, HEADS=heads, D=dim, BLOCK_D=block_d, BN=plan.tile,
            SPLITS=plan.splits, BLOCK_S=next_power_of_2(plan.splits), num_warps=1, **options,
        )  # fmt: skip
    return out
