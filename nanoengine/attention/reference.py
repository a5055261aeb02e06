"""Attention in plain torch: the CPU path, and the oracle for every other backend.

It is stricter than the kernels it stands for: dtypes, bounds and lengths are checked.
"""

import itertools
from typing import NamedTuple

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
    plan = _store_plan(slot_mapping, k, k_cache)
    if plan.keep is not None:
        k, v = k[plan.keep], v[plan.keep]
    k_cache.view(-1, *k_cache.shape[2:]).index_copy_(0, plan.slots, k)
    v_cache.view(-1, *v_cache.shape[2:]).index_copy_(0, plan.slots, v)


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
    starts_q, starts_k = (lengths.tolist() for lengths in context.prefill_lengths())
    _check_lengths(q, starts_q, starts_k, context)
    out = torch.empty_like(q)
    for i in range(len(starts_q) - 1):
        rows = slice(starts_q[i], starts_q[i + 1])
        length = starts_k[i + 1] - starts_k[i]
        if context.block_tables is None:
            keys, values = k[rows], v[rows]
        else:
            slots = _slots(
                context.block_tables[i : i + 1],
                torch.arange(length, device=q.device)[None],
                k_cache,
            )[0]
            keys, values = _gather(k_cache, slots), _gather(v_cache, slots)
        out[rows] = _causal(q[rows], keys, values, scale)
    return out


def _causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention of the last len(q) of len(k) tokens: query i sees len(k) - len(q) + i + 1 keys."""
    fresh = len(q) == len(k)
    mask = None
    if not fresh:
        # the mask's diagonal is aligned at the bottom right: the last query sees every key
        mask = torch.ones(len(q), len(k), dtype=torch.bool, device=q.device).tril(len(k) - len(q))
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        attn_mask=mask,
        is_causal=fresh,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out[0].transpose(0, 1)


# All layers of a run see the same slots and lengths: what follows from them is worked out (and
# checked) once, by the first layer, and kept for the others. A tensor or a Context describes one
# run and is never changed; the next run brings new ones.


class _StorePlan(NamedTuple):
    """Where the tokens of one run are written."""

    slot_mapping: torch.Tensor
    keep: torch.Tensor | None  # [n] bool: tokens that have a slot; None: all of them
    slots: torch.Tensor  # int64 slots of those tokens


class _DecodePlan(NamedTuple):
    """What one decode run reads."""

    context: Context
    slots: torch.Tensor | slice  # [b, longest] int64, or one sequence's slots in one piece
    mask: torch.Tensor | None  # [b, 1, 1, longest] bool: which of them exist; None: all
    used: torch.Tensor | None  # [b, 1, 1] bool: rows that are no padding; None: all


_last_store: list[_StorePlan] = []
_last_decode: list[_DecodePlan] = []


def _store_plan(slot_mapping: torch.Tensor, k: torch.Tensor, k_cache: torch.Tensor) -> _StorePlan:
    if _last_store and _last_store[0].slot_mapping is slot_mapping:
        return _last_store[0]
    _check_slots(slot_mapping, k, k_cache)
    keep = None
    slots = slot_mapping.long()
    if len(slots) and int(slots.min()) < 0:
        # left out by hand, since `cache[-1] = k` would silently write the last slot
        keep = slots >= 0
        slots = slots[keep]
    _last_store[:] = [_StorePlan(slot_mapping, keep, slots)]
    return _last_store[0]


def _decode_plan(context: Context, k_cache: torch.Tensor) -> _DecodePlan:
    if _last_decode and _last_decode[0].context is context:
        return _last_decode[0]
    context_lens, block_tables = context.decode_tensors()
    lengths = context_lens[:, None]
    longest, shortest = int(context_lens.max()), int(context_lens.min())
    positions = torch.arange(longest, device=context_lens.device)[None]
    seen = positions < lengths
    # Behind a sequence's end its first token is read again: it is masked, and it is never the
    # uninitialised memory that a masked but unwritten slot may hold (0 times NaN is NaN).
    slots = _slots(block_tables, torch.where(seen, positions, 0), k_cache, lengths > 0)
    one_piece = len(slots) == 1 and bool((slots[0, 1:] - slots[0, :-1] == 1).all())
    _last_decode[:] = [
        _DecodePlan(
            context,
            slice(int(slots[0, 0]), int(slots[0, -1]) + 1) if one_piece and longest else slots,
            seen[:, None, None] if shortest < longest else None,
            lengths[..., None] > 0 if shortest == 0 else None,
        )
    ]
    return _last_decode[0]


def _decode(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, context: Context, scale: float
) -> torch.Tensor:
    """One query a sequence against its context_lens[i] cached tokens, all sequences at once."""
    batch, heads, head_dim = q.shape
    kv_heads = k_cache.shape[2]
    plan = _decode_plan(context, k_cache)
    # the query heads that share a kv head are rows of one small matrix: K and V are read once
    out = F.scaled_dot_product_attention(
        q.view(batch, kv_heads, heads // kv_heads, head_dim),
        _gather(k_cache, plan.slots).transpose(1, 2),
        _gather(v_cache, plan.slots).transpose(1, 2),
        attn_mask=plan.mask,
        scale=scale,
    ).reshape(q.shape)
    return out if plan.used is None else torch.where(plan.used, out, 0.0)


def _slots(
    tables: torch.Tensor,
    positions: torch.Tensor,
    cache: torch.Tensor,
    used: torch.Tensor | None = None,
) -> torch.Tensor:
    """Slots of `positions`, [b, n], of sequences whose block tables are given; [b, n] int64.

    Rows that are not `used` get slot 0. Raises EngineError for a block that does not exist.
    """
    num_blocks, block_size = cache.shape[:2]
    index = positions // block_size
    if positions.numel() and int(index.max()) >= tables.shape[1]:
        raise EngineError(
            f"position {int(positions.max())} needs block {int(index.max())} of a sequence, but "
            f"block_tables has {tables.shape[1]} columns of {block_size} tokens"
        )
    blocks = tables.long().gather(1, index.expand(len(tables), -1))
    if used is not None:
        blocks = torch.where(used, blocks, 0)
    if blocks.numel() and not 0 <= int(blocks.min()) <= int(blocks.max()) < num_blocks:
        bad = int(blocks.min()) if int(blocks.min()) < 0 else int(blocks.max())
        raise EngineError(
            f"a block table names block {bad}, the KV cache has blocks 0..{num_blocks - 1}: "
            "-1 pads a table and must not be read"
        )
    return blocks * block_size + positions % block_size


def _gather(cache: torch.Tensor, slots: torch.Tensor | slice) -> torch.Tensor:
    """K or V of the slots, [..., kv_heads, head_dim]; a slice is one sequence, not copied."""
    heads, dim = cache.shape[2:]
    if isinstance(slots, slice):
        return cache.view(-1, heads, dim)[None, slots]
    rows = cache.view(-1, heads * dim).index_select(0, slots.flatten())
    return rows.view(*slots.shape, heads, dim)


def _check_lengths(
    q: torch.Tensor, starts_q: list[int], starts_k: list[int], context: Context
) -> None:
    """Refuse what a varlen kernel would silently compute wrongly."""
    lengths_q = [b - a for a, b in itertools.pairwise(starts_q)]
    lengths_k = [b - a for a, b in itertools.pairwise(starts_k)]
    if starts_q[-1] != len(q) or len(starts_q) != len(starts_k):
        raise EngineError(
            f"cu_seqlens_q {starts_q} and cu_seqlens_k {starts_k} do not describe {len(q)} queries"
        )
    if max(lengths_q) > context.max_seqlen_q or max(lengths_k) > context.max_seqlen_k:
        raise EngineError(
            f"max_seqlen_q={context.max_seqlen_q}, max_seqlen_k={context.max_seqlen_k}, but the "
            f"longest are {max(lengths_q)} and {max(lengths_k)}: a kernel would stop early"
        )
    for i, (queries, keys) in enumerate(zip(lengths_q, lengths_k, strict=True)):
        if keys < queries or queries < 1:
            raise EngineError(f"sequence {i} has {queries} queries and {keys} keys: too few keys")
        if context.block_tables is None and keys != queries:
            raise EngineError(
                f"sequence {i} has {keys - queries} cached tokens but block_tables is None: "
                "history can only be read through block tables"
            )


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
