"""Kernels in Triton's interpreter, in float32, where there is no GPU; on one in bfloat16 too."""

import os
from dataclasses import dataclass
from dataclasses import fields as fields_of

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is decorated, so before any import
# Triton 3.6's interpreter cannot loop under numpy 2.4 and later
pytest.importorskip("triton", minversion=None if HAS_GPU else "3.7", reason="needs Triton")


@dataclass(frozen=True)
class Arena:
    """Where and in which dtype a kernel is compared, and how close it must be."""

    device: torch.device
    dtype: torch.dtype
    tolerance: float

    def randn(self, *shape: int, std: float = 1.0) -> torch.Tensor:
        return (torch.randn(*shape) * std).to(self.device, self.dtype)

    def close(self, got: torch.Tensor, want: torch.Tensor) -> None:
        """Relative error of the whole tensor; `want` was computed in float32 from equal inputs."""
        got, want = got.float(), want.float()
        assert got.shape == want.shape
        assert torch.isfinite(got).all()
        error = (got - want).norm() / want.norm().clamp(min=1e-6)
        assert error < self.tolerance, f"relative error {error:.2e}"


ARENAS = [Arena(torch.device("cpu"), torch.float32, 2e-6)]
if HAS_GPU:
    cuda = torch.device("cuda")
    ARENAS = [Arena(cuda, torch.bfloat16, 1e-2), Arena(cuda, torch.float32, 2e-5)]


@pytest.fixture(params=ARENAS, ids=lambda arena: f"{arena.device.type}-{arena.dtype}")
def arena(request: pytest.FixtureRequest) -> Arena:
    torch.manual_seed(0)
    return request.param


@dataclass(frozen=True)
class Paged:
    """A batch of sequences in a paged cache: (q, k, v, k_cache, v_cache), context and scale."""

    args: tuple[torch.Tensor, ...]
    context: object
    scale: float


@pytest.fixture
def make_paged():
    """Build a batch whose blocks lie in a shuffled order, in a cache that is NaN elsewhere."""
    from nanoengine.context import Context

    def make(arena, new, history, heads, kv_heads, dim, block_size, prefill=False):
        history_or_none, history = history, history or [0] * len(new)
        totals = [a + b for a, b in zip(new, history, strict=True)]
        tokens = sum(new) if prefill else len(new)
        q, k, v = (arena.randn(tokens, h, dim) for h in (heads, kv_heads, kv_heads))
        needed = [-(-total // block_size) for total in totals]
        order = torch.randperm(sum(needed) + 2).int()
        tables = torch.full((len(new), max(needed)), -1, dtype=torch.int32)
        caches = [torch.full((len(order), block_size, kv_heads, dim), torch.nan) for _ in "kv"]
        at = 0
        for i, (count, total) in enumerate(zip(needed, totals, strict=True)):
            tables[i, :count] = order[at : at + count]
            at += count
            for cache in caches:
                flat = torch.full((count * block_size, kv_heads, dim), torch.nan)
                flat[:total] = torch.randn(total, kv_heads, dim)
                cache[tables[i, :count].long()] = flat.view(count, block_size, kv_heads, dim)
        int32 = lambda x: torch.tensor(x, dtype=torch.int32, device=arena.device)  # noqa: E731
        slots, tables = int32([0] * tokens), tables.to(arena.device)
        if prefill:
            sums = [[sum(x[:i]) for i in range(len(x) + 1)] for x in (new, totals)]
            context = Context(
                True, slots, int32(sums[0]), int32(sums[1]), max(new), max(totals), None,
                None if history_or_none is None else tables,
            )  # fmt: skip
        else:
            context = Context(False, slots, context_lens=int32(totals), block_tables=tables)
        k_cache, v_cache = (cache.to(arena.device, arena.dtype) for cache in caches)
        return Paged((q, k, v, k_cache, v_cache), context, dim**-0.5)

    return make


def reference_attend(batch):
    """What the torch backend makes of a Paged batch on the CPU, in float32."""
    from nanoengine.attention import reference
    from nanoengine.context import Context

    tensors = [x.float().cpu() for x in batch.args]
    fields = {f.name: getattr(batch.context, f.name) for f in fields_of(batch.context)}
    moved = {n: v.cpu() if isinstance(v, torch.Tensor) else v for n, v in fields.items()}
    got = reference.attend(*tensors, Context(**moved), batch.scale)
    return got.to(batch.args[0].device)
