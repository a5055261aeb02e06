"""Attention in plain torch: the CPU path, and the oracle for every other backend.

It is stricter than the kernels it stands for: dtypes, bounds and lengths are checked.
"""

import torch
import torch.nn.functional as F

from nanoengine.context import Context
from nanoengine.errors import EngineError


def store_kvcache(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write each token's K and V into its slot; a negative slot writes nothing.

    k, v: [n, kv_heads, head_dim]; caches: [blocks, block_size, kv_heads, head_dim], contiguous;
    slot_mapping: [n] int32. Slot 9 with block_size 4 is offset 1 of block 2.

    Raises EngineError for a slot beyond the cache or another dtype.
    """
    _check_slots(slot_mapping, k, k_cache)
    # Boolean indexing rather than `cache[slot_mapping] = k`: -1 would silently be the last slot.
    keep = slot_mapping >= 0
    slots = slot_mapping[keep].long()
    k_cache.view(-1, *k_cache.shape[2:])[slots] = k[keep]
    v_cache.view(-1, *v_cache.shape[2:])[slots] = v[keep]


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    context: Context,
    scale: float,
) -> torch.Tensor:
    """Causal attention over fresh K and V (no history), or over the cache (history, decode).

    q: [n, heads, head_dim]; k, v: [n, kv_heads, head_dim] of this step's tokens. Returns
    [n, heads, head_dim]; rows of padded decode sequences (length 0) are zero.
    """
    if not context.is_prefill:
        return _decode(q, k_cache, v_cache, context, scale)
    assert context.cu_seqlens_q is not None and context.cu_seqlens_k is not None
    ends_q, ends_k = context.cu_seqlens_q.tolist(), context.cu_seqlens_k.tolist()
    out = torch.empty_like(q)
    for i in range(len(ends_q) - 1):
        rows = slice(ends_q[i], ends_q[i + 1])
        length = ends_k[i + 1] - ends_k[i]
        if context.block_tables is None:
            keys, values = k[rows], v[rows]
        else:
            keys = _gather(k_cache, context.block_tables[i], length)
            values = _gather(v_cache, context.block_tables[i], length)
        out[rows] = _causal(q[rows], keys, values, scale)
    return out


def _causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention of the last len(q) of len(k) tokens: query i sees keys up to len(k) - len(q) + i."""
    fresh = len(q) == len(k)
    # the mask's diagonal is aligned at the bottom right: the last query sees every key
    mask = None
    if not fresh and len(q) > 1:
        mask = torch.ones(len(q), len(k), dtype=torch.bool, device=q.device)
        mask = mask.tril(len(k) - len(q))
    out = F.scaled_dot_product_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)),
        attn_mask=mask,
        is_causal=fresh and len(q) > 1,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out[0].transpose(0, 1)


def _decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    context: Context,
    scale: float,
) -> torch.Tensor:
    """One query a sequence against its context_lens[i] cached tokens."""
    assert context.context_lens is not None and context.block_tables is not None
    out = torch.zeros_like(q)
    for i, length in enumerate(context.context_lens.tolist()):
        if length:
            keys = _gather(k_cache, context.block_tables[i], length)
            values = _gather(v_cache, context.block_tables[i], length)
            out[i : i + 1] = _causal(q[i : i + 1], keys, values, scale)
    return out


def _gather(cache: torch.Tensor, table: torch.Tensor, length: int) -> torch.Tensor:
    """The first `length` tokens of the sequence whose blocks are `table`: [length, heads, dim]."""
    blocks = table[: -(-length // cache.shape[1])]
    return cache[blocks.long()].flatten(0, 1)[:length]


def _check_slots(slot_mapping: torch.Tensor, k: torch.Tensor, k_cache: torch.Tensor) -> None:
    slots = k_cache.shape[0] * k_cache.shape[1]
    if slot_mapping.dtype != torch.int32 or slot_mapping.shape != k.shape[:1]:
        raise EngineError(
            f"slot_mapping is {slot_mapping.dtype} {list(slot_mapping.shape)}, "
            f"expected int32 [{len(k)}]: one slot a token"
        )
    if k.dtype != k_cache.dtype:
        raise EngineError(f"k is {k.dtype} but the KV cache {k_cache.dtype}: use one dtype")
    if len(slot_mapping) and int(slot_mapping.max()) >= slots:
        raise EngineError(
            f"slot {int(slot_mapping.max())} is beyond the KV cache of {slots} slots: "
            "a block table holds a block that does not exist"
        )
