"""Prefill attention: the queries of several sequences, packed end to end, in one kernel.

Reference: `attention.reference.attend`. Here arithmetic is the work, and the tiles of K and V that
it needs come from the L2 cache again and again. A program takes a block of queries, and of each
two of the heads that share a kv head: so a tile serves twice as many products. It walks over the
keys that its queries may see: first the tiles that every query sees in full, then the few on the
diagonal, which need a mask. Keys come from this step's fresh K and V or, where a sequence has
history (a prefix hit, an earlier chunk), from the paged cache.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from nanoengine.kernels.capability import Capability
from nanoengine.kernels.pdl import start_next, wait
from nanoengine.kernels.sizes import cdiv, next_power_of_2
from nanoengine.kernels.softmax import LOG2E, attend_tile, load_blocks, slots_of


@triton.jit
def _walk(
    q, k_ptr, v_ptr, table_ptr, first, end, limit, kv_stride, m, total, acc, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BN: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    PAGED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Attend to keys [first, end); with MASKED, a row of q sees only keys below its `limit`."""
    key, d = tl.arange(0, BN), tl.arange(0, BLOCK_D)[None, :]
    if PAGED:  # block ids one tile ahead, as in decode_attention
        blocks = load_blocks(table_ptr, first, key, end, BLOCK_SIZE, BN)
    for start in range(first, end, BN):
        if PAGED:
            row = slots_of(blocks, start, key, BLOCK_SIZE)[:, None]
            blocks = load_blocks(table_ptr, start + BN, key, end, BLOCK_SIZE, BN)
        else:
            row = (start + key)[:, None].to(tl.int64)
        tile = row * kv_stride + d
        if MASKED:
            inside = (start + key < end)[:, None] & (d < D)
            k = tl.load(k_ptr + tile, mask=inside, other=0.0)
            v = tl.load(v_ptr + tile, mask=inside, other=0.0)
        elif D < BLOCK_D:
            k = tl.load(k_ptr + tile, mask=d < D, other=0.0)
            v = tl.load(v_ptr + tile, mask=d < D, other=0.0)
        else:
            k, v = tl.load(k_ptr + tile), tl.load(v_ptr + tile)
        visible = (start + key)[None, :] < limit[:, None]
        m, total, acc = attend_tile(q, k, v, visible, m, total, acc, scale_log2, MASKED=MASKED)
    return m, total, acc


@triton.jit(do_not_specialize=["table_stride", "query_blocks"])
def _prefill(
    q_ptr, k_ptr, v_ptr, out_ptr, cu_q_ptr, cu_k_ptr, table_ptr,
    q_stride, kv_stride, table_stride, query_blocks, scale_log2,
    HEADS: tl.constexpr, G: tl.constexpr, PACK: tl.constexpr, D: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PAGED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (PACK heads, sequence, block of BM // PACK queries); the longest blocks start first.

    Row r of its tile is query r // PACK, head r % PACK of the PACK, which share a kv head.
    """
    first_head, b = tl.program_id(0) * PACK, tl.program_id(1)
    queries: tl.constexpr = BM // PACK
    first_query = (query_blocks - 1 - tl.program_id(2)) * queries
    start_next(PDL)
    start_q, start_k = tl.load(cu_q_ptr + b).to(tl.int64), tl.load(cu_k_ptr + b).to(tl.int64)
    num_q = (tl.load(cu_q_ptr + b + 1) - start_q).to(tl.int32)
    num_k = (tl.load(cu_k_ptr + b + 1) - start_k).to(tl.int32)
    wait(PDL)
    if first_query >= num_q:
        return
    r, d = tl.arange(0, BM), tl.arange(0, BLOCK_D)[None, :]
    query, head = first_query + r // PACK, first_head + r % PACK
    inside = (query < num_q)[:, None] & (d < D)
    q_row = ((start_q + query) * q_stride + head * D)[:, None]
    q = tl.load(q_ptr + q_row + d, mask=inside, other=0.0)
    limit = query + 1 + num_k - num_q  # a query sees the history and the keys up to its own
    k_ptr, v_ptr = k_ptr + first_head // G * D, v_ptr + first_head // G * D
    if PAGED:
        table_ptr += b * table_stride
    else:
        k_ptr, v_ptr = k_ptr + start_k * kv_stride, v_ptr + start_k * kv_stride
    full = (first_query + 1 + num_k - num_q) // BN * BN  # every query of the block sees these keys
    end = tl.minimum(first_query + queries + num_k - num_q, num_k)
    m = tl.full([BM], -1e30, tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, BLOCK_D], tl.float32)
    m, total, acc = _walk(
        q, k_ptr, v_ptr, table_ptr, 0, full, limit, kv_stride, m, total, acc, scale_log2,
        D, BLOCK_D, BN, BLOCK_SIZE, PAGED, MASKED=False,
    )  # fmt: skip
    m, total, acc = _walk(
        q, k_ptr, v_ptr, table_ptr, full, end, limit, kv_stride, m, total, acc, scale_log2,
        D, BLOCK_D, BN, BLOCK_SIZE, PAGED, MASKED=True,
    )  # fmt: skip
    out = (acc / total[:, None]).to(out_ptr.dtype.element_ty)
    out_row = ((start_q + query) * (HEADS * D) + head * D)[:, None]
    tl.store(out_ptr + out_row + d, out, mask=inside)


class PrefillPlan(NamedTuple):
    """Launch shape: heads packed, rows (queries x heads) and keys a tile, warps, stages, registers.

    registers: the most that a thread may use, so that more programs fit; None leaves it open.
    """

    pack: int
    rows: int
    keys: int
    warps: int
    stages: int
    registers: int | None


def plan_prefill(group: int, key_bytes: int, device: Capability) -> PrefillPlan:
    """The launch shape for `group` query heads a kv head and keys of `key_bytes` (one head's).

    Two heads are packed where they can be: of an odd group they are taken one by one.
    128 rows and 8 warps leave room for two programs a multiprocessor while a thread is content with
    128 registers. It is with tiles of 32 keys; with 64 the compiler would let each matrix
    instruction wait for the one before. Large heads and an older card's shared memory take smaller
    tiles.
    """
    pack = 2 if group % 2 == 0 else 1
    if key_bytes > 256 or device.shared_memory < 160 * 1024:
        return PrefillPlan(pack, 64, 32, 4, 2, None)
    if pack == 1:  # 64 queries, as with two heads: wider blocks waste more on the diagonal
        return PrefillPlan(pack, 64, 64, 4, 3, None)
    return PrefillPlan(pack, 128, 32, 8, 4, 128)


def prefill_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    block_tables: torch.Tensor | None,
    scale: float,
    device: Capability,
    options: dict[str, Any],
) -> torch.Tensor:
    """Causal attention of packed sequences, [n, heads, head_dim] -> the same shape.

    Without block_tables, k and v are this step's, [n, kv_heads, head_dim]; with them, k and v are
    the caches, [blocks, block_size, kv_heads, head_dim], and the last of the cu_seqlens_k tokens
    are the queries' own. cu_seqlens: [b + 1] int32; block_tables: [b, blocks] int32.
    """
    heads, dim = q.shape[1:]
    kv_heads, paged = k.shape[-2], block_tables is not None
    q, k, v = (x if x.stride()[-2:] == (dim, 1) else x.contiguous() for x in (q, k, v))
    if k.stride() != v.stride():
        k, v = k.contiguous(), v.contiguous()
    block_d, group = max(16, next_power_of_2(dim)), heads // kv_heads
    plan = plan_prefill(group, block_d * k.itemsize, device)
    out, query_blocks = q.new_empty(q.shape), cdiv(max_seqlen_q, plan.rows // plan.pack)
    _prefill[(heads // plan.pack, len(cu_seqlens_q) - 1, query_blocks)](
        q, k, v, out, cu_seqlens_q, cu_seqlens_k, cu_seqlens_q if block_tables is None else
        block_tables, q.stride(0), k.stride(-3),
        0 if block_tables is None else block_tables.stride(0), query_blocks, scale * LOG2E,
        HEADS=heads, G=group, PACK=plan.pack, D=dim, BLOCK_D=block_d,
        BLOCK_SIZE=k.shape[1] if paged else 1, BM=plan.rows, BN=plan.keys, PAGED=paged,
        num_warps=plan.warps, num_stages=plan.stages, maxnreg=plan.registers, **options,
    )  # fmt: skip
    return out
