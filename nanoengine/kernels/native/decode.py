"""A decode step through all layers in one C call; None where it must go layer by layer.

The layers' own code (`models.qwen3`) is the reference, and it says what is wrong with a slot or a
block: where a call fails, the same step is run again by it, and raises.
"""

import ctypes
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from nanoengine.context import Context
from nanoengine.kernels.native.build import Layer, Sizes
from nanoengine.kernels.native.operands import integers, plain


class Stack(NamedTuple):
    """The layers of one model as the C function takes them, and their common sizes.

    tensors: of all layers; while they are kept, no address outlives its memory.
    """

    entries: Any
    tensors: list[torch.Tensor]
    heads: int
    kv_heads: int
    dim: int
    inner: int
    eps: float
    scale: float


def stack_layers(layers: nn.ModuleList) -> Stack | None:
    """The `DecoderLayer`s as a Stack; None when they have a bias, other ranks or no cache yet,
    or differ in a shape: the C function is told one size for all of them.

    Like a graph on a GPU it reads weights and caches where they lie now: they are filled, never
    replaced.
    """
    tensors: list[torch.Tensor] = []
    shapes: set[tuple[torch.Size | None, ...]] = set()
    entries = (Layer * len(layers))()
    for entry, layer in zip(entries, cast(Any, layers), strict=True):
        attention, mlp = layer.self_attn, layer.mlp
        linears = (attention.qkv_proj, attention.o_proj, mlp.gate_up_proj, mlp.down_proj)
        if any(linear.bias is not None for linear in linears) or attention.o_proj.group.size > 1:
            return None
        qkv, o, gate_up, down = (linear.weight for linear in linears)
        norms = (attention.q_norm, attention.k_norm)
        q_gain, k_gain = (None if norm is None else norm.weight for norm in norms)
        own = [
            *(layer.input_layernorm.weight, qkv, q_gain, k_gain, o),
            *(layer.post_attention_layernorm.weight, gate_up, down),
            *(attention.attn.k_cache, attention.attn.v_cache),
        ]
        there = [tensor for tensor in own if tensor is not None]
        shapes.add(tuple(None if tensor is None else tensor.shape for tensor in own))
        if not plain(*there) or not _fit(attention, qkv, o, gate_up, down):
            return None
        tensors += there
        for (name, *_), tensor in zip(Layer._fields_, own, strict=True):
            setattr(entry, name, None if tensor is None else tensor.data_ptr())
    if len(shapes) > 1:
        return None
    start: Any = layers[0]
    first, inner = start.self_attn, start.mlp.down_proj.weight.shape[1]
    projection = first.qkv_proj
    return Stack(
        entries, tensors, projection.num_heads, projection.num_kv_heads, first.head_dim, inner,
        first.eps, first.attn.scale,
    )  # fmt: skip


def _fit(
    attention: Any, qkv: torch.Tensor, o: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> bool:
    """Whether the shapes are those that the C function derives from each other."""
    heads, kv_heads = attention.qkv_proj.num_heads, attention.qkv_proj.num_kv_heads
    dim, (hidden, inner) = attention.head_dim, down.shape
    k_cache, v_cache = attention.attn.k_cache, attention.attn.v_cache
    return (
        qkv.shape == ((heads + 2 * kv_heads) * dim, hidden)
        and o.shape == (hidden, heads * dim)
        and gate_up.shape == (2 * inner, hidden)
        and k_cache.ndim == 4  # not yet in a warm-up
        and k_cache.shape[2:] == (kv_heads, dim)
        and v_cache.shape == k_cache.shape
        and heads % kv_heads == 0
    )


def decode_layers(
    library: ctypes.CDLL,
    stack: Stack,
    cache: torch.Tensor,
    x: torch.Tensor,
    cos_sin: tuple[torch.Tensor, torch.Tensor],
    context: Context,
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """[n, hidden] embeddings -> (x, residual) behind the last layer; cache: a layer's keys."""
    lengths, tables = context.decode_tensors()
    slots, (cos, sin), (rows, hidden) = context.slot_mapping, cos_sin, x.shape
    width = tables.shape[-1]
    if not (integers(slots, rows) and integers(lengths, rows) and integers(tables, rows, width)):
        return None
    if len(cos) != rows or not plain(x, cos, sin):
        return None
    num_blocks, block_size = cache.shape[:2]
    heads, kv_heads, dim = stack.heads, stack.kv_heads, stack.dim
    row = (heads + 2 * kv_heads) * dim
    sizes = Sizes(
        rows, rows, 1, 0, width, num_blocks, block_size, heads, kv_heads, dim, row, kv_heads * dim
    )
    x, residual = x.clone(), torch.empty_like(x)
    work = torch.empty(rows * (hidden + row + heads * dim + 3 * stack.inner))
    failed = library.decode_layers(
        ctypes.addressof(stack.entries), len(stack.entries), x.data_ptr(), residual.data_ptr(),
        work.data_ptr(), cos.data_ptr(), sin.data_ptr(), slots.data_ptr(), lengths.data_ptr(),
        tables.data_ptr(), ctypes.addressof(sizes), hidden, stack.inner, stack.eps, stack.scale,
        torch.get_num_threads(),
    )  # fmt: skip
    return None if failed else (x, residual)
