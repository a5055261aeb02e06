"""The kernels as the layers call them, with the guards of one device applied."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from nanoengine.context import Context
from nanoengine.kernels import (
    activation,
    decode_attention,
    norm,
    order,
    prefill_attention,
    products,
    rope,
    sampler,
    stage,
    store,
)  # fmt: skip
from nanoengine.kernels.capability import Capability
from nanoengine.kernels.pdl import launch_options

ORDER_ABOVE = 16  # sequences: fewer all run at once, whatever their order

# All layers of a run see the same lengths: the first one sorts them, for all (a Context describes
# one run and never changes).
_last_order: list[tuple[Context, torch.Tensor]] = []


def _order_of(context: Context, lengths: torch.Tensor) -> torch.Tensor:
    if _last_order and _last_order[0][0] is context:
        return _last_order[0][1]
    found = order.longest_first(lengths)
    _last_order[:] = [(context, found)]
    return found


@dataclass(frozen=True, slots=True)
class GpuKernels:
    """All kernels on a device with these capabilities; layers hold one, or None for plain torch."""

    device: Capability

    @property
    def options(self) -> dict[str, Any]:
        """Launch options of every kernel that knows programmatic launch."""
        return launch_options(self.device.pdl)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """[n, size] -> [n, size]; see `norm.add_rms_norm`."""
        return norm.add_rms_norm(x, None, weight, eps, self.options)[0]

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm(x + residual), x + residual); x may be float32 parts; see `norm.add_rms_norm`."""
        return norm.add_rms_norm(x, residual, weight, eps, self.options)

    def silu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 2 m] -> [n, m]; see `activation.silu_and_mul`."""
        return activation.silu_and_mul(x, self.options)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, parts: bool = False) -> torch.Tensor:
        """[n, outputs]; with `parts` perhaps float32 [parts, n, outputs]; see `products.linear`."""
        plan = self._plan(x, weight, parts, gated=False)
        if plan is products.LIBRARY:
            return F.linear(x, weight)
        return products.linear(x, weight, plan, False, self.options)

    def linear_silu(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """silu of the first half of the outputs times the second; see `products.linear`."""
        plan = self._plan(x, weight, parts=False, gated=True)
        if plan is products.LIBRARY:
            return self.silu_and_mul(F.linear(x, weight))
        return products.linear(x, weight, plan, True, self.options)

    def _plan(
        self, x: torch.Tensor, weight: torch.Tensor, parts: bool, gated: bool
    ) -> products.Plan:
        if x.dtype == torch.float32 and x.is_cuda:  # exactness is asked for: leave it to torch
            return products.LIBRARY
        outputs, inputs = weight.shape
        return products.plan_linear(len(x), outputs, inputs, parts, gated, self.device)

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
        """qkv product -> (q, k, v) and a written cache; see `rope.rotate_and_store`."""
        return rope.rotate_and_store(
            qkv, gains, eps, cos_sin, slot_mapping, caches, heads, dtype, self.options
        )

    def store_kvcache(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Write K and V into their slots; see `store.store_kvcache`."""
        store.store_kvcache(k, v, k_cache, v_cache, slot_mapping)

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
            lengths, tables = context.decode_tensors()
            first = _order_of(context, lengths) if len(lengths) > ORDER_ABOVE else None
            return decode_attention.decode_attention(
                q, k_cache, v_cache, tables, lengths, scale, self.device, self.options, first
            )
        ends_q, ends_k = context.prefill_lengths()
        keys, values = (k, v) if tables is None else (k_cache, v_cache)
        return prefill_attention.prefill_attention(
            q, keys, values, ends_q, ends_k, context.max_seqlen_q, tables, scale, self.device,
            self.options,
        )  # fmt: skip

    def decode_layers(
        self,
        layers: nn.ModuleList,
        x: torch.Tensor,
        cos_sin: tuple[torch.Tensor, torch.Tensor],
        context: Context,
    ) -> None:
        """None: layer by layer. What a CPU gains by one call, a GPU gains by a graph."""
        return

    def sample(
        self,
        logits: torch.Tensor,
        temperatures: torch.Tensor,
        noise: torch.Tensor,
        rows: torch.Tensor,
        last_token: torch.Tensor,
        cold: float,
    ) -> torch.Tensor:
        """Logits to tokens, on the device; see `sampler.sample`."""
        return sampler.sample(logits, temperatures, noise, rows, last_token, cold, self.options)

    def resolve_placeholders(
        self, token_ids: torch.Tensor, last_token: torch.Tensor
    ) -> torch.Tensor:
        """-(row + 1) becomes the row's newest token; see `stage.resolve_placeholders`."""
        return stage.resolve_placeholders(token_ids, last_token)

    def stage_decode(
        self,
        source: tuple[torch.Tensor, ...],
        target: tuple[torch.Tensor, ...],
        bucket: int,
        last_token: torch.Tensor,
    ) -> None:
        """Copy a decode batch into static buffers; see `stage.stage_decode`."""
        stage.stage_decode(source, target, bucket, last_token)
