"""Write K and V into their slots. Reference: `attention.reference.store_kvcache`."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import torch
import triton
import triton.language as tl

from nanoengine.kernels.sizes import next_power_of_2


@triton.jit
def _store_kvcache(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slot_ptr, k_stride, v_stride,
    ROW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token a program; ROW = kv_heads * head_dim elements lie side by side in the cache."""
    token = tl.program_id(0).to(tl.int64)
    # 64-bit: a pool of 100 GB has more elements than 32 bits can count
    slot = tl.load(slot_ptr + token).to(tl.int64)
    if slot < 0:
        return
    column = tl.arange(0, BLOCK)
    inside = column < ROW
    k = tl.load(k_ptr + token * k_stride + column, mask=inside)
    v = tl.load(v_ptr + token * v_stride + column, mask=inside)
    tl.store(k_cache_ptr + slot * ROW + column, k, mask=inside)
    tl.store(v_cache_ptr + slot * ROW + column, v, mask=inside)


def store_kvcache(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write each token's K and V into its slot; a negative slot writes nothing.

    k, v: [n, kv_heads, head_dim], may be slices of a wider row; caches: [blocks, block_size,
    kv_heads, head_dim], contiguous; slot_mapping: [n] int32.
    """
    row = k.shape[1] * k.shape[2]
    k, v = (x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous() for x in (k, v))
    _store_kvcache[(len(k),)](
        k, v, k_cache, v_cache, slot_mapping, k.stride(0), v.stride(0),
        ROW=row, BLOCK=next_power_of_2(row), num_warps=4,
    )  # fmt: skip
