"""Attention by the `flash-attn` package (FlashAttention-2, arXiv 2307.08691).

Importing this module needs the package and Triton (which writes the KV cache). The package's paged
kernels read blocks of `config.FLASH_ATTN_BLOCK` tokens or a multiple; the config refuses others.
"""

from dataclasses import dataclass

import torch
from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache

from nanoengine.context import Context
from nanoengine.kernels.store import store_kvcache


@dataclass(frozen=True, slots=True)
class FlashAttnBackend:
    """`attention.base.AttentionBackend` over flash-attn's two functions."""

    def store_kvcache(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Write K and V into their slots; see `kernels.store.store_kvcache`."""
        store_kvcache(k, v, k_cache, v_cache, slot_mapping)

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        context: Context,
        scale: float,
    ) -> torch.Tensor:
        """Causal attention as the context says; see `AttentionBackend.attend`."""
        tables = context.block_tables
        if not context.is_prefill:
            out: torch.Tensor = flash_attn_with_kvcache(
                q[:, None],  # [b, 1, heads, head_dim]: one query a sequence
                k_cache,
                v_cache,
                cache_seqlens=context.context_lens,
                block_table=tables,
                softmax_scale=scale,
                causal=True,
            )
            return out[:, 0]
        if tables is not None:
            k, v = k_cache, v_cache
        packed: torch.Tensor = flash_attn_varlen_func(
            q,
            k,
            v,
            cu_seqlens_q=context.cu_seqlens_q,
            cu_seqlens_k=context.cu_seqlens_k,
            max_seqlen_q=context.max_seqlen_q,
            max_seqlen_k=context.max_seqlen_k,
            softmax_scale=scale,
            causal=True,
            block_table=tables,
        )
        return packed
