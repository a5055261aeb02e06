"""SwiGLU's gate, in one pass. Reference: `layers.activation.silu_and_mul`."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl

from nanoengine.kernels.pdl import start_next, wait
from nanoengine.kernels.sizes import cdiv

_BLOCK = 1024


@triton.jit
def silu(x):
    """x * sigmoid(x), in float32."""
    return x / (1.0 + tl.exp2(-1.4426950408889634 * x))


@triton.jit
def _silu_and_mul(x_ptr, y_ptr, size, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """Program (row, block): y = silu(x[:size]) * x[size:] for BLOCK columns."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    start_next(PDL)
    wait(PDL)
    x_row = x_ptr + row * 2 * size + column
    gate = tl.load(x_row, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_row + size, mask=inside, other=0.0).to(tl.float32)
    y = (silu(gate) * up).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * size + column, y, mask=inside)


def silu_and_mul(x: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    """[n, 2 m] -> [n, m]: silu of the first half times the second half."""
    rows, size = x.shape[0], x.shape[1] // 2
    y = torch.empty(rows, size, dtype=x.dtype, device=x.device)
    grid = (rows, cdiv(size, _BLOCK))
    _silu_and_mul[grid](x, y, size, BLOCK=_BLOCK, num_warps=4, **options)
    return y
