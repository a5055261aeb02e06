"""The C kernels as the layers call them: the CPU's counterpart of `kernels.gpu`.

Each method names its reference, torch code that does the same. Pointers know no bounds, so
whatever a kernel does not expect (an index out of range, another dtype, gaps in memory) goes to
the reference, which computes it or says what is wrong with it.
"""

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from nanoengine.context import Context
from nanoengine.errors import EngineError
from nanoengine.kernels.native import attend, decode
from nanoengine.kernels.native.operands import integers, plain

if TYPE_CHECKING:
    from nanoengine.attention.base import AttentionBackend

# Rows from which on the library's matrix product is faster than ours. Milliseconds of all products
# of the classroom model, two cores with AVX-512, MKL's and ours (torch 2.13):
#   1 row: 0.70, 0.72   8: 1.64, 1.15   20: 3.21, 1.96   32: 3.65, 2.87   64: 4.50, 5.60
FEW_ROWS = 40
threads = torch.get_num_threads


@dataclass(slots=True)
class CpuKernels:
    """All kernels, of a library that `build.load_library` has loaded, and attention in torch."""

    library: ctypes.CDLL
    reference: "AttentionBackend"
    _stack: decode.Stack | None = None
    _stacked: tuple[int, ...] = ()  # what _stack was made of

    def decode_layers(
        self,
        layers: nn.ModuleList,
        x: torch.Tensor,
        cos_sin: tuple[torch.Tensor, torch.Tensor],
        context: Context,
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """A decode step of few rows through all layers: (x, residual) behind the last of them.

        None when it has to go layer by layer, which is also the reference: `DecoderLayer.forward`.
        """
        if context.is_prefill or len(x) > FEW_ROWS or not len(layers):
            return None
        first: Any = layers[0]
        cache, weight = first.self_attn.attn.k_cache, first.mlp.down_proj.weight
        here = (id(layers), cache.data_ptr(), weight.data_ptr())
        if here != self._stacked:
            self._stack, self._stacked = decode.stack_layers(layers), here
        if self._stack is None:
            return None
        return decode.decode_layers(self.library, self._stack, cache, x, cos_sin, context)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """[n, size] -> [n, size]. Reference: `layers.layernorm.rms_norm`."""
        x = x.contiguous()
        y = torch.empty_like(x)
        self.library.add_rms_norm(
            x.data_ptr(), None, weight.data_ptr(), None, y.data_ptr(), *x.shape, eps, threads()
        )
        return y

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm(x + residual), x + residual). Reference: `layers.layernorm.RMSNorm.add_norm`."""
        x, residual = x.contiguous(), residual.contiguous()
        y, total = torch.empty_like(x), torch.empty_like(x)
        self.library.add_rms_norm(
            x.data_ptr(), residual.data_ptr(), weight.data_ptr(), total.data_ptr(), y.data_ptr(),
            *x.shape, eps, threads(),
        )  # fmt: skip
        return y, total

    def silu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 2 m] -> [n, m]. Reference: `layers.activation.silu_and_mul`."""
        x = x.contiguous()
        rows, size = len(x), x.shape[1] // 2
        y = torch.empty(rows, size)
        self.library.silu_and_mul(x.data_ptr(), y.data_ptr(), rows, size, threads())
        return y

    def linear(self, x: torch.Tensor, weight: torch.Tensor, parts: bool = False) -> torch.Tensor:
        """[n, inputs] -> [n, outputs]; the parts of `GpuKernels.linear` do not occur.

        Reference: `torch.nn.functional.linear`, which also does what has many rows.
        """
        rows, (outputs, inputs) = len(x), weight.shape
        if rows > FEW_ROWS or x.shape[1] != inputs or not plain(x, weight):
            return F.linear(x, weight)
        y = torch.empty(rows, outputs)
        self.library.linear(
            x.data_ptr(), weight.data_ptr(), y.data_ptr(), rows, outputs, inputs, threads()
        )
        return y

    def linear_silu(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """silu of the first half of the outputs times the second; as the two are, in one call."""
        rows, (outputs, inputs) = len(x), weight.shape
        if rows > FEW_ROWS or x.shape[1] != inputs or not plain(x, weight):
            return self.silu_and_mul(F.linear(x, weight))
        both, y = torch.empty(rows, outputs), torch.empty(rows, outputs // 2)
        self.library.linear_silu(
            x.data_ptr(), weight.data_ptr(), both.data_ptr(), y.data_ptr(), rows, outputs // 2,
            inputs, threads(),
        )  # fmt: skip
        return y

    def rotate_and_store(
        self,
        qkv: torch.Tensor,
        gains: tuple[torch.Tensor, torch.Tensor] | None,
        eps: float,
        cos_sin: tuple[torch.Tensor, torch.Tensor],
        slot_mapping: torch.Tensor,
        caches: tuple[torch.Tensor, torch.Tensor],
        heads: tuple[int, int, int],
        dtype: torch.dtype,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """qkv product -> (q, k, v), normed and turned in place, and a written cache.

        Arguments as those of `kernels.rope.rotate_and_store`. Reference: `SelfAttention.forward`
        and `attention.reference.store_kvcache`. Raises EngineError for a slot beyond the cache,
        and for another number of slots or positions than tokens.
        """
        num_heads, kv_heads, dim = heads
        tokens, (k_cache, v_cache) = len(qkv), caches
        q, k, v = qkv.view(tokens, -1, dim).split_with_sizes([num_heads, kv_heads, kv_heads], 1)
        if len(cos_sin[0]) != tokens:
            raise EngineError(f"{len(cos_sin[0])} positions for {tokens} tokens: give each its own")
        carved = k_cache.numel() > 0  # not yet in a warm-up
        expected = (*k_cache.shape[:2], kv_heads, dim)
        ours = carved and k_cache.shape == v_cache.shape == expected and plain(k_cache, v_cache)
        ours = ours and integers(slot_mapping, tokens)
        # a cache or slots that C does not expect: it only turns, and the reference stores
        slots = slot_mapping if ours else torch.full((tokens,), -1, dtype=torch.int32)
        q_gain, k_gain = (None, None) if gains is None else (g.data_ptr() for g in gains)
        failed = self.library.rotate_and_store(
            qkv.data_ptr(), q_gain, k_gain, cos_sin[0].data_ptr(), cos_sin[1].data_ptr(),
            slots.data_ptr(), k_cache.data_ptr(), v_cache.data_ptr(), tokens, num_heads,
            kv_heads, dim, k_cache.shape[0] * k_cache.shape[1] if ours else 0, eps, threads(),
        )  # fmt: skip
        if failed or (carved and not ours):
            self.reference.store_kvcache(k, v, k_cache, v_cache, slot_mapping)
        return q, k, v

    def store_kvcache(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Write K and V into their slots: the reference itself (the layers store as they turn)."""
        self.reference.store_kvcache(k, v, k_cache, v_cache, slot_mapping)

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
        """Causal attention as the context says. Reference: `attention.reference.attend`."""
        attention = attend.prefill if context.is_prefill else attend.decode
        out = attention(self.library, q, k, v, k_cache, v_cache, context, scale)
        if out is None:
            return self.reference.attend(q, k, v, k_cache, v_cache, context, scale)
        return out

    def sample(
        self,
        logits: torch.Tensor,
        temperatures: torch.Tensor,
        noise: torch.Tensor,
        rows: torch.Tensor,
        last_token: torch.Tensor,
        cold: float,
    ) -> torch.Tensor:
        """[b, vocab] logits -> [b] tokens, also in last_token[rows[i]]; row -1: nowhere.

        Reference: `layers.sampler.sample`. Raises EngineError for a row that is not in the table,
        and for another number of rows than logits have.
        """
        batch, vocab = logits.shape
        if not len(temperatures) == len(noise) == len(rows) == batch:
            raise EngineError(f"{batch} rows of logits for {len(rows)} sequences: one for each")
        logits = logits if logits.stride(1) == 1 else logits.contiguous()
        weights, tokens = torch.empty(batch, vocab), torch.empty(batch, dtype=torch.int64)
        if self.library.sample(
            logits.data_ptr(), logits.stride(0), temperatures.data_ptr(), noise.data_ptr(),
            rows.data_ptr(), weights.data_ptr(), tokens.data_ptr(), last_token.data_ptr(), batch,
            vocab, len(last_token), cold, threads(),
        ):  # fmt: skip
            raise _no_row(rows.tolist(), last_token)
        return tokens

    def resolve_placeholders(
        self, token_ids: torch.Tensor, last_token: torch.Tensor
    ) -> torch.Tensor:
        """[n] int64 ids; -(row + 1) becomes the row's newest token.

        Reference: `ModelRunner._resolve`. Raises EngineError for a row that is not in the table.
        """
        token_ids, out = token_ids.contiguous(), torch.empty_like(token_ids)
        if self.library.resolve_placeholders(
            token_ids.data_ptr(), last_token.data_ptr(), out.data_ptr(), len(out), len(last_token)
        ):
            raise _no_row([-token - 1 for token in token_ids.tolist() if token < 0], last_token)
        return out


def _no_row(rows: list[int], last_token: torch.Tensor) -> EngineError:
    size = len(last_token)
    bad = next((row for row in rows if not -1 <= row < size), None)
    return EngineError(
        f"row {bad} is beyond the table of {size} newest tokens: rows are 0..{size - 1}"
    )
