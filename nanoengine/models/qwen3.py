"""The decoder that Qwen3, Qwen2 and Llama share; ModelConfig's flags say where they differ."""

import functools
from typing import ClassVar

import torch
from torch import nn

from nanoengine.attention.base import AttentionBackend
from nanoengine.context import get_context
from nanoengine.distributed.group import SINGLE, TPGroup
from nanoengine.kernels.binding import KernelLayer
from nanoengine.layers import activation
from nanoengine.layers.attention import Attention
from nanoengine.layers.embed_head import ParallelLMHead, VocabParallelEmbedding
from nanoengine.layers.layernorm import RMSNorm, rms_norm
from nanoengine.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from nanoengine.layers.rotary import RotaryEmbedding, apply_rotary
from nanoengine.models.config import ModelConfig

CosSin = tuple[torch.Tensor, torch.Tensor]


class SelfAttention(KernelLayer):
    """Project to q, k, v; normalise heads (Qwen3 only); rotate; attend; project back."""

    def __init__(self, config: ModelConfig, backend: AttentionBackend, group: TPGroup) -> None:
        super().__init__()
        head_dim = config.head_dim
        self.head_dim, self.eps = head_dim, config.rms_norm_eps
        self.qkv_proj = QKVParallelLinear(
            config.hidden_size,
            config.num_attention_heads,
            config.num_key_value_heads,
            head_dim,
            config.qkv_bias,
            group,
        )
        self.o_proj = RowParallelLinear(
            config.num_attention_heads * head_dim, config.hidden_size, config.o_bias, group
        )
        self.q_norm = RMSNorm(head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.attn = Attention(head_dim**-0.5, backend)

    def forward(self, x: torch.Tensor, cos_sin: CosSin) -> torch.Tensor:
        """[n, hidden] -> [n, hidden]."""
        if self.kernels is not None:
            return self._fused(x, cos_sin)
        heads = self.qkv_proj(x).view(len(x), -1, self.head_dim)  # [n, heads + 2 kv_heads, dim]
        num_heads, num_kv_heads = self.qkv_proj.num_heads, self.qkv_proj.num_kv_heads
        qk, v = heads.split_with_sizes([num_heads + num_kv_heads, num_kv_heads], 1)
        if self.qk_gain is not None:
            qk = rms_norm(qk, self.qk_gain, self.eps)
        qk = apply_rotary(qk, *cos_sin)
        q, k = qk.split_with_sizes([num_heads, num_kv_heads], 1)
        out: torch.Tensor = self.o_proj(self.attn(q, k, v))
        return out

    @functools.cached_property
    def qk_gain(self) -> torch.Tensor | None:
        """[heads + kv_heads, head_dim]: gains of q_norm and k_norm, so that one norm does both."""
        if self.q_norm is None or self.k_norm is None:
            return None
        q_gain = self.q_norm.weight.expand(self.qkv_proj.num_heads, -1)
        k_gain = self.k_norm.weight.expand(self.qkv_proj.num_kv_heads, -1)
        return torch.cat((q_gain, k_gain))

    def _fused(self, x: torch.Tensor, cos_sin: CosSin) -> torch.Tensor:
        """The same with one kernel for all that lies between the product and attention."""
        assert self.kernels is not None
        context, qkv_proj, attn = get_context(), self.qkv_proj, self.attn
        gains = None
        if self.q_norm is not None and self.k_norm is not None:
            gains = self.q_norm.weight, self.k_norm.weight
        q, k, v = self.kernels.rotate_and_store(
            qkv_proj(x),
            gains,
            self.eps,
            cos_sin,
            context.slot_mapping,
            (attn.k_cache, attn.v_cache),
            (qkv_proj.num_heads, qkv_proj.num_kv_heads, self.head_dim),
            dtype=x.dtype,
        )
        out: torch.Tensor = self.o_proj(attn.attend(q, k, v))
        return out


class MLP(KernelLayer):
    """Gate and up projections in one product, SwiGLU, and the projection down."""

    def __init__(self, config: ModelConfig, group: TPGroup) -> None:
        super().__init__()
        inner = config.intermediate_size
        self.gate_up_proj = ColumnParallelLinear(
            config.hidden_size, [inner, inner], config.mlp_bias, group
        )
        self.down_proj = RowParallelLinear(inner, config.hidden_size, config.mlp_bias, group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, hidden] -> [n, hidden]."""
        if self.kernels is None:
            inner = activation.silu_and_mul(self.gate_up_proj(x))
        elif self.gate_up_proj.bias is None:
            inner = self.kernels.linear_silu(x, self.gate_up_proj.weight)
        else:
            inner = self.kernels.silu_and_mul(self.gate_up_proj(x))
        out: torch.Tensor = self.down_proj(inner)
        return out


class DecoderLayer(nn.Module):
    """Attention and MLP, each behind an RMSNorm; the residual travels beside the hidden states."""

    def __init__(self, config: ModelConfig, backend: AttentionBackend, group: TPGroup) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, group)
        self.self_attn = SelfAttention(config, backend, group)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, group)
        self.mlp = MLP(config, group)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, cos_sin: CosSin
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(x, residual) -> (x, residual); their sum is the usual hidden state."""
        if residual is None:
            x, residual = self.input_layernorm(x), x
        else:
            x, residual = self.input_layernorm.add_norm(x, residual)
        x = self.self_attn(x, cos_sin)
        x, residual = self.post_attention_layernorm.add_norm(x, residual)
        return self.mlp(x), residual


class Decoder(KernelLayer):
    """Embedding, layers, final norm: the names are those of the checkpoint."""

    def __init__(
        self, config: ModelConfig, backend: AttentionBackend, group: TPGroup, max_positions: int
    ) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, group)
        self.layers = nn.ModuleList(
            DecoderLayer(config, backend, group) for _ in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, group)
        self.rotary = RotaryEmbedding(
            config.head_dim, max_positions, config.rope_theta, config.rope_scaling
        )

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[n] token ids and positions, int64 -> [n, hidden]."""
        x: torch.Tensor = self.embed_tokens(input_ids)
        residual: torch.Tensor | None = None
        cos_sin = self.rotary(positions)
        done = None
        if self.kernels is not None:
            done = self.kernels.decode_layers(self.layers, x, cos_sin, get_context())
        if done is not None:
            x, residual = done
        else:
            for layer in self.layers:
                x, residual = layer(x, residual, cos_sin)
        if residual is None:  # a model of no layers
            out: torch.Tensor = self.norm(x)
        else:  # as every sum with the residual: x may be the parts of a product (add_norm)
            out = self.norm.add_norm(x, residual)[0]
        return out


class Qwen3ForCausalLM(nn.Module):
    """A causal language model; with other flags, Qwen2 and Llama.

    packed_modules: checkpoint projections that live stacked in one of our layers, and where.
    """

    packed_modules: ClassVar[dict[str, tuple[str, int]]] = {
        "q_proj": ("qkv_proj", 0),
        "k_proj": ("qkv_proj", 1),
        "v_proj": ("qkv_proj", 2),
        "gate_proj": ("gate_up_proj", 0),
        "up_proj": ("gate_up_proj", 1),
    }

    def __init__(
        self,
        config: ModelConfig,
        backend: AttentionBackend,
        max_positions: int,
        group: TPGroup = SINGLE,
    ) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config, backend, group, max_positions)
        self.lm_head = ParallelLMHead(config.vocab_size, config.hidden_size, group)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[n] token ids and positions, int64 -> hidden states [n, hidden]."""
        out: torch.Tensor = self.model(input_ids, positions)
        return out

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Hidden states -> logits [b, vocab_size], one row a sequence.

        In prefill only each sequence's last row, the one before cu_seqlens_q's border, is fed to
        the head: the others' next tokens are already known.
        """
        context = get_context()
        if context.is_prefill:
            cu_seqlens_q, _ = context.prefill_lengths()
            hidden_states = hidden_states[cu_seqlens_q[1:].long() - 1]
        logits: torch.Tensor = self.lm_head(hidden_states)
        return logits
