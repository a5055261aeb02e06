"""From the product of qkv_proj to rotated heads and a written cache, in one kernel.

Reference: `models.qwen3.SelfAttention` (RMSNorm of the query and key heads, `apply_rotary`) and
`attention.reference.store_kvcache`, four torch operations on the same few kilobytes. Doing all of
it inside the attention kernel saves another launch a layer (0.7 microseconds), but makes two easy
kernels one hard one.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl

from nanoengine.kernels.pdl import start_next, wait
from nanoengine.kernels.sizes import cdiv, next_power_of_2


@triton.jit
def _sum_parts(ptr, offsets, mask, part_stride, PARTS: tl.constexpr):
    """Sum of PARTS float32 parts, or the one value there is."""
    total = tl.load(ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(1, PARTS):
        total += tl.load(ptr + part * part_stride + offsets, mask=mask, other=0.0).to(tl.float32)
    return total


@triton.jit(do_not_specialize=["tokens"])
def _rotate_and_store(
    qkv_ptr, q_gain_ptr, k_gain_ptr, cos_ptr, sin_ptr, slot_ptr,
    out_ptr, k_cache_ptr, v_cache_ptr, tokens, eps,
    H: tl.constexpr, KVH: tl.constexpr, D: tl.constexpr, BLOCK_HALF: tl.constexpr,
    HB: tl.constexpr, PARTS: tl.constexpr, NORM: tl.constexpr, CACHE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Program (token, group of HB heads). Heads [0, H) are q, then KVH of k, then KVH of v.

    Component d of a head's first half is turned with component d of its second half: one thread
    loads both, so nothing is read twice, and writing in place harms no other thread.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HB + tl.arange(0, HB)[:, None]
    d = tl.arange(0, BLOCK_HALF)[None, :]
    HALF: tl.constexpr = D // 2
    WIDTH: tl.constexpr = (H + 2 * KVH) * D
    inside = (head < H + 2 * KVH) & (d < HALF)
    is_v = head >= H + KVH
    start_next(PDL)
    # gains are weights: they can be read before the product is there
    if NORM:
        gain_ptr = tl.where(head < H, q_gain_ptr, k_gain_ptr)
        gain_1 = tl.load(gain_ptr + d, mask=inside, other=0.0).to(tl.float32)
        gain_2 = tl.load(gain_ptr + HALF + d, mask=inside, other=0.0).to(tl.float32)
    wait(PDL)
    row = token * WIDTH + head * D + d
    part_stride = tokens.to(tl.int64) * WIDTH
    x_1 = _sum_parts(qkv_ptr, row, inside, part_stride, PARTS)
    x_2 = _sum_parts(qkv_ptr, row + HALF, inside, part_stride, PARTS)
    # of the sines the second half is stored as it is, the first one negated
    cos = tl.load(cos_ptr + token * D + d, mask=d < HALF, other=0.0)
    sin = tl.load(sin_ptr + token * D + HALF + d, mask=d < HALF, other=0.0)
    a, b = x_1, x_2
    if NORM:
        scale = tl.rsqrt(tl.sum(x_1 * x_1 + x_2 * x_2, 1) / D + eps)[:, None]
        a, b = x_1 * gain_1 * scale, x_2 * gain_2 * scale
    dtype = out_ptr.dtype.element_ty
    y_1 = tl.where(is_v, x_1, a * cos - b * sin).to(dtype)
    y_2 = tl.where(is_v, x_2, b * cos + a * sin).to(dtype)
    changed = inside
    if PARTS == 1:  # out is qkv itself: v is there already
        changed = inside & (head < H + KVH)
    tl.store(out_ptr + row, y_1, mask=changed)
    tl.store(out_ptr + row + HALF, y_2, mask=changed)
    if CACHE:
        slot = tl.load(slot_ptr + token).to(tl.int64)
        cache = slot * (KVH * D) + (head - H) * D + d
        is_k = inside & (slot >= 0) & (head >= H) & (head < H + KVH)
        is_v = inside & (slot >= 0) & is_v
        tl.store(k_cache_ptr + cache, y_1, mask=is_k)
        tl.store(k_cache_ptr + cache + HALF, y_2, mask=is_k)
        tl.store(v_cache_ptr + cache - KVH * D, y_1, mask=is_v)
        tl.store(v_cache_ptr + cache - KVH * D + HALF, y_2, mask=is_v)


def rotate_and_store(
    qkv: torch.Tensor,
    gains: tuple[torch.Tensor, torch.Tensor] | None,
    eps: float,
    cos_sin: tuple[torch.Tensor, torch.Tensor],
    slot_mapping: torch.Tensor,
    caches: tuple[torch.Tensor, torch.Tensor],
    heads: tuple[int, int, int],
    dtype: torch.dtype,
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """qkv product -> (q, k, v), normed and rotated; K and V also go into their cache slots.

    qkv: [n, (heads + 2 kv_heads) * head_dim], changed in place, or float32 [parts, n, ...] to be
    summed; q, k and v are views of one tensor, so a token's row is longer than its heads. gains:
    of q_norm and k_norm, None without QK-norm; cos_sin: [n, 1, head_dim] float32, as
    `RotaryEmbedding` makes them; caches: K and V, empty before the pool is carved; heads: (heads,
    kv_heads, head_dim); dtype: of the model.
    """
    num_heads, kv_heads, dim = heads
    tokens, total = qkv.shape[-2], num_heads + 2 * kv_heads
    parts = qkv.shape[0] if qkv.dim() == 3 else 1
    qkv = qkv.contiguous()
    out = qkv if parts == 1 else torch.empty(tokens, total * dim, dtype=dtype, device=qkv.device)
    q_gain, k_gain = gains if gains is not None else (out, out)
    carved = caches[0].numel() > 0
    k_cache, v_cache = caches if carved else (out, out)  # a pointer that is never followed
    group = min(8, next_power_of_2(total))  # enough programs also for one token
    _rotate_and_store[(tokens, cdiv(total, group))](
        qkv, q_gain, k_gain, *cos_sin, slot_mapping, out, k_cache, v_cache, tokens, eps,
        H=num_heads, KVH=kv_heads, D=dim, BLOCK_HALF=next_power_of_2(dim // 2), HB=group,
        PARTS=parts, NORM=gains is not None, CACHE=carved, num_warps=4, **options,
    )  # fmt: skip
    rows, first_v = out.view(tokens, total, dim), num_heads + kv_heads
    return rows[:, :num_heads], rows[:, num_heads:first_v], rows[:, first_v:]
