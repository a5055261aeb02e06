"""Prefill attention: the queries of several sequences, packed end to end, in one kernel.

Reference: `attention.reference.attend`. Here arithmetic is the work. A program takes 64 queries of
one head and walks over the keys that they may see: first the tiles that every query sees in full,
then the few on the diagonal, which need a mask. Keys come from this step's fresh K and V or,
where a sequence has history (a prefix hit, an earlier chunk), from the paged cache.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl

from nanoengine.kernels.capability import Capability
from nanoengine.kernels.pdl import start_next, wait
from nanoengine.kernels.softmax import LOG2E, attend_tile, load_blocks, slots_of


@triton.jit
def _walk(
    q, k_ptr, v_ptr, table_ptr, first, end, limit, k_stride, v_stride, m, total, acc, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BN: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    PAGED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Attend to keys [first, end); with MASKED, a query sees only keys below its `limit`."""
    key, d = tl.arange(0, BN), tl.arange(0, BLOCK_D)[None, :]
    if PAGED:  # block ids one tile ahead, as in decode_attention
        blocks = load_blocks(table_ptr, first, key, end, BLOCK_SIZE, BN)
    for start in range(first, end, BN):
        if PAGED:
            row = slots_of(blocks, start, key, BLOCK_SIZE)[:, None]
            blocks = load_blocks(table_ptr, start + BN, key, end, BLOCK_SIZE, BN)
        else:
            row = (start + key)[:, None].to(tl.int64)
        inside = d < D
        if MASKED:
            inside = inside & (start + key < end)[:, None]
        k = tl.load(k_ptr + row * k_stride + d, mask=inside, other=0.0)
        v = tl.load(v_ptr + row * v_stride + d, mask=inside, other=0.0)
        visible = (start + key)[None, :] < limit[:, None]
        m, total, acc = attend_tile(q, k, v, visible, m, total, acc, scale_log2, MASKED=MASKED)
    return m, total, acc


@triton.jit(do_not_specialize=["table_stride", "query_blocks"])
def _prefill(
    q_ptr, k_ptr, v_ptr, out_ptr, cu_q_ptr, cu_k_ptr, table_ptr,
    q_stride, k_stride, v_stride, table_stride, query_blocks, scale_log2,
    HEADS: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PAGED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (head, sequence, block of BM queries); the longest blocks start first."""
    head, b = tl.program_id(0), tl.program_id(1)
    first_query = (query_blocks - 1 - tl.program_id(2)) * BM
    start_next(PDL)
    start_q, start_k = tl.load(cu_q_ptr + b).to(tl.int64), tl.load(cu_k_ptr + b).to(tl.int64)
    num_q = (tl.load(cu_q_ptr + b + 1) - start_q).to(tl.int32)
    num_k = (tl.load(cu_k_ptr + b + 1) - start_k).to(tl.int32)
    wait(PDL)
    if first_query >= num_q:
        return
    query, d = first_query + tl.arange(0, BM), tl.arange(0, BLOCK_D)[None, :]
    row = (start_q + query)[:, None]
    inside = (query < num_q)[:, None] & (d < D)
    q = tl.load(q_ptr + row * q_stride + head * D + d, mask=inside, other=0.0)
    limit = query + 1 + num_k - num_q  # a query sees the history and the keys up to its own
    k_ptr, v_ptr = k_ptr + head // G * D, v_ptr + head // G * D
    if PAGED:
        table_ptr += b * table_stride
    else:
        k_ptr, v_ptr = k_ptr + start_k * k_stride, v_ptr + start_k * v_stride
    full = (first_query + 1 + num_k - num_q) // BN * BN  # every query of the block sees these keys
    end = tl.minimum(first_query + BM + num_k - num_q, num_k)
    m = tl.full([BM], -1e30, tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, BLOCK_D], tl.float32)
    m, total, acc = _walk(
        q, k_ptr, v_ptr, table_ptr, 0, full, limit, k_stride, v_stride, m, total, acc, scale_log2,
        D, BLOCK_D, BN, BLOCK_SIZE, PAGED, MASKED=False,
    )  # fmt: skip
    m, total, acc = _walk(
        q, k_ptr, v_ptr, table_ptr, full, end, limit, k_stride, v_stride, m, total, acc, scale_log2,
        D, BLOCK_D, BN, BLOCK_SIZE, PAGED, MASKED=True,
    )  # fmt: skip
    out = (acc / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * HEADS * D + head * D + d, out, mask=inside)


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
    block_d = max(16, triton.next_power_of_2(dim))
    # 64 x 64 with three stages: 16 x 1024 tokens in 233 microseconds on an H200 (boxes fetched by
    # the hardware, TMA, at their best 225); large heads or an older card's shared memory take
    # smaller tiles
    small = block_d * k.itemsize > 256 or device.shared_memory < 160 * 1024
    queries, keys, stages = (64, 32, 2) if small else (64, 64, 3)
    out, query_blocks = q.new_empty(q.shape), triton.cdiv(max_seqlen_q, queries)
    _prefill[(heads, len(cu_seqlens_q) - 1, query_blocks)](
        q, k, v, out, cu_seqlens_q, cu_seqlens_k, cu_seqlens_q if block_tables is None else
        block_tables, q.stride(0), k.stride(-3), v.stride(-3),
        0 if block_tables is None else block_tables.stride(0), query_blocks, scale * LOG2E,
        HEADS=heads, G=heads // kv_heads, D=dim, BLOCK_D=block_d,
        BLOCK_SIZE=k.shape[1] if paged else 1, BM=queries, BN=keys, PAGED=paged,
        num_warps=4, num_stages=stages, **options,
    )  # fmt: skip
    return out
