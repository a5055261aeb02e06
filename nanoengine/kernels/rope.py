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
    q_ptr, kv_ptr, k_cache_ptr, v_cache_ptr, tokens, eps,
    H: tl.constexpr, KVH: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, HB: tl.constexpr,
    PARTS: tl.constexpr, NORM: tl.constexpr, FRESH: tl.constexpr, CACHE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Program (token, group of HB heads). Heads [0, H) are q, then KVH of k, then KVH of v."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HB + tl.arange(0, HB)[:, None]
    d = tl.arange(0, BLOCK_D)[None, :]
    partner = (d + D // 2) % D  # the other component of the pair that is turned together
    inside = (head < H + 2 * KVH) & (d < D)
    is_q, is_v = head < H, head >= H + KVH
    start_next(PDL)
    # gains are weights: they can be read before the product is there
    if NORM:
        gain_ptr = tl.where(is_q, q_gain_ptr, k_gain_ptr)
        gain = tl.load(gain_ptr + d, mask=inside, other=0.0).to(tl.float32)
        partner_gain = tl.load(gain_ptr + partner, mask=inside, other=0.0).to(tl.float32)
    wait(PDL)
    row = token * (H + 2 * KVH) * D + head * D
    part_stride = tokens.to(tl.int64) * ((H + 2 * KVH) * D)
    x = _sum_parts(qkv_ptr, row + d, inside, part_stride, PARTS)
    other = _sum_parts(qkv_ptr, row + partner, inside, part_stride, PARTS)
    cos = tl.load(cos_ptr + token * D + d, mask=d < D, other=0.0)
    sin = tl.load(sin_ptr + token * D + d, mask=d < D, other=0.0)
    if NORM:
        scale = tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None]
        turned = (x * gain * cos + other * partner_gain * sin) * scale
    else:
        turned = x * cos + other * sin
    y = tl.where(is_v, x, turned).to(q_ptr.dtype.element_ty)
    tl.store(q_ptr + (token * H + head) * D + d, y, mask=inside & is_q)
    kv_head = head - H
    if FRESH:
        tl.store(kv_ptr + (token * 2 * KVH + kv_head) * D + d, y, mask=inside & (head >= H))
    if CACHE:
        slot = tl.load(slot_ptr + token).to(tl.int64)
        cache = slot * (KVH * D) + d
        write = inside & (slot >= 0)
        tl.store(k_cache_ptr + cache + kv_head * D, y, mask=write & (head >= H) & (head < H + KVH))
        tl.store(v_cache_ptr + cache + (kv_head - KVH) * D, y, mask=write & is_v)


def rotate_and_store(
    qkv: torch.Tensor,
    gains: tuple[torch.Tensor, torch.Tensor] | None,
    eps: float,
    cos_sin: tuple[torch.Tensor, torch.Tensor],
    slot_mapping: torch.Tensor,
    caches: tuple[torch.Tensor, torch.Tensor],
    heads: tuple[int, int, int],
    dtype: torch.dtype,
    fresh: bool,
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """qkv product -> (q, k, v), normed and rotated; K and V also go into their cache slots.

    qkv: [n, (heads + 2 kv_heads) * head_dim] or float32 [parts, n, ...] to be summed; gains: of
    q_norm and k_norm, None without QK-norm; cos_sin: [n, 1, head_dim] float32, as `RotaryEmbedding`
    makes them; caches: K and V,
    empty before the pool is carved; heads: (heads, kv_heads, head_dim); fresh: also return k and v
    (decode reads them from the cache, so there they are empty). dtype: of the model.
    """
    num_heads, kv_heads, dim = heads
    tokens = qkv.shape[-2]
    q = torch.empty(tokens, num_heads, dim, dtype=dtype, device=qkv.device)
    kv = torch.empty(tokens if fresh else 0, 2 * kv_heads, dim, dtype=dtype, device=qkv.device)
    q_gain, k_gain = gains if gains is not None else (q, q)
    carved = caches[0].numel() > 0
    k_cache, v_cache = caches if carved else (q, q)  # a pointer that is never followed
    # eight heads a program: enough programs for one token, few enough registers for many
    group = min(8, triton.next_power_of_2(num_heads + 2 * kv_heads))
    grid = (tokens, triton.cdiv(num_heads + 2 * kv_heads, group))
    _rotate_and_store[grid](
        qkv, q_gain, k_gain, *cos_sin, slot_mapping, q, kv if fresh else q, k_cache, v_cache,
        tokens, eps,
        H=num_heads, KVH=kv_heads, D=dim, BLOCK_D=triton.next_power_of_2(dim), HB=group,
        PARTS=qkv.shape[0] if qkv.dim() == 3 else 1, NORM=gains is not None, FRESH=fresh,
        CACHE=carved, num_warps=4, **options,
    )  # fmt: skip
    return q, kv[:, :kv_heads], kv[:, kv_heads:]
