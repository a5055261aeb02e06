"""Attention by the C kernels; None where they cannot compute it: the reference can, or says why.

Both functions take the arguments of `AttentionBackend.attend`, and the library before them.
"""

import ctypes

import torch

from nanoengine.context import Context
from nanoengine.kernels.native.build import Sizes
from nanoengine.kernels.native.operands import heads_together, integers, plain

# Queries of a sequence from which on prefill is left to the reference: its large matrix products
# are faster than ours.
LONG = 512


def decode(
    library: ctypes.CDLL,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    context: Context,
    scale: float,
) -> torch.Tensor | None:
    """One query a sequence, keys and values read in place through the block tables."""
    lengths, tables = context.decode_tensors()
    batch, width = len(q), tables.shape[-1]
    if not (integers(lengths, batch) and integers(tables, batch, width)):
        return None
    if not (plain(k_cache, v_cache) and heads_together(q) and _fit(q, k_cache, v_cache)):
        return None
    sizes = _sizes(q, k_cache.shape, k_cache.stride(1), batch, width, context)
    out = torch.empty(q.shape)
    failed = library.attend_decode(
        q.data_ptr(), k_cache.data_ptr(), v_cache.data_ptr(), out.data_ptr(), lengths.data_ptr(),
        tables.data_ptr(), ctypes.addressof(sizes), scale, torch.get_num_threads(),
    )  # fmt: skip
    return None if failed else out


def prefill(
    library: ctypes.CDLL,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    context: Context,
    scale: float,
) -> torch.Tensor | None:
    """Packed sequences; their keys are this run's own, or with block tables lie in the cache."""
    ends_q, ends_k = context.prefill_lengths()
    tables, count, width = context.block_tables, len(ends_q) - 1, 0
    if count < 1 or not (integers(ends_q, count + 1) and integers(ends_k, count + 1)):
        return None
    if context.max_seqlen_q > LONG or not heads_together(q):
        return None
    if tables is None:
        shape, stride = torch.Size((0, 1, *k.shape[1:])), k.stride(0)
        if len(k) != len(q) or not (heads_together(k) and v.stride() == k.stride()):
            return None
    else:
        k, v, width = k_cache, v_cache, tables.shape[-1]
        shape, stride = k.shape, k.stride(1)
        if not (integers(tables, count, width) and plain(k, v)):
            return None
    if not _fit(q, k, v):
        return None
    sizes = _sizes(q, shape, stride, count, width, context)
    out = torch.empty(q.shape)
    failed = library.attend_prefill(
        q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), ends_q.data_ptr(),
        ends_k.data_ptr(), None if tables is None else tables.data_ptr(), ctypes.addressof(sizes),
        scale, torch.get_num_threads(),
    )  # fmt: skip
    return None if failed else out


def _fit(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether keys and values are of one shape, and every key head serves as many query heads."""
    heads, dim = q.shape[1:]
    return k.shape == v.shape and k.shape[-1] == dim and heads % k.shape[-2] == 0


def _sizes(
    q: torch.Tensor, cache: torch.Size, stride: int, sequences: int, width: int, context: Context
) -> Sizes:
    """stride: floats from a key to the next one of the same head."""
    tokens, heads, dim = q.shape
    num_blocks, block_size, kv_heads, _ = cache
    return Sizes(
        sequences, tokens, context.max_seqlen_q, context.max_seqlen_k, width, num_blocks,
        block_size, heads, kv_heads, dim, q.stride(0), stride,
    )  # fmt: skip
