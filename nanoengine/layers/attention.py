"""Attention as the model sees it: write this step's K and V, then attend, as the Context says."""

import torch
from torch import nn

from nanoengine import context as context_module
from nanoengine.attention.base import AttentionBackend


class Attention(nn.Module):
    """One layer's KV cache and the backend that reads it.

    k_cache, v_cache: [blocks, block_size, kv_heads, head_dim], bound after the pool is carved;
    empty before (a warm-up run writes nothing).
    """

    def __init__(self, scale: float, backend: AttentionBackend) -> None:
        super().__init__()
        self.scale = scale
        self.backend = backend
        self.k_cache = self.v_cache = torch.empty(0)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: [n, heads, head_dim], k and v: [n, kv_heads, head_dim] -> [n, heads * head_dim]."""
        context = context_module.get_context()
        if self.k_cache.numel():
            self.backend.store_kvcache(k, v, self.k_cache, self.v_cache, context.slot_mapping)
        return self.attend(q, k, v)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The same for K and V that are in the cache already, written by a fused kernel."""
        context = context_module.get_context()
        out = self.backend.attend(q, k, v, self.k_cache, self.v_cache, context, self.scale)
        return out.flatten(1)
