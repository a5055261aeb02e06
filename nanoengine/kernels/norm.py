"""RMSNorm with the residual addition before it, in one pass over memory.

Reference: `layers.layernorm.RMSNorm`. Torch reads and writes the row four times; this kernel reads
it once. It also sums the float32 parts of a product that was split along its inner axis
(`products.py`): the parts have to be read here anyway, so the sum costs no launch of its own.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl

from nanoengine.kernels.pdl import start_next, wait
from nanoengine.kernels.sizes import next_power_of_2


@triton.jit(do_not_specialize=["rows"])
def _add_rms_norm(
    x_ptr, residual_ptr, gain_ptr, y_ptr, total_ptr, rows, size, eps,
    PARTS: tl.constexpr, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row a program: total = residual + sum of PARTS parts of x; y = norm(total) * gain."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    start_next(PDL)
    gain = tl.load(gain_ptr + column, mask=inside, other=0.0).to(tl.float32)
    wait(PDL)
    total = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        x = tl.load(x_ptr + (part * rows + row) * size + column, mask=inside, other=0.0)
        total += x.to(tl.float32)
    if RESIDUAL:
        old = tl.load(residual_ptr + row * size + column, mask=inside, other=0.0)
        total += old.to(tl.float32)
        tl.store(total_ptr + row * size + column, total.to(total_ptr.dtype.element_ty), mask=inside)
    scale = tl.rsqrt(tl.sum(total * total, 0) / size + eps)
    y = total * scale * gain
    tl.store(y_ptr + row * size + column, y.to(y_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    """(x, residual) -> (norm(x + residual) * weight, x + residual); without residual, (norm, x).

    x: [n, size], or [parts, n, size] float32 to be summed; residual: [n, size]. Sums are kept in
    float32 until the end, so bfloat16 results are a little closer to the exact ones than torch's.
    """
    x = x.contiguous()
    parts = x.shape[0] if x.dim() == 3 else 1
    rows, size = x.shape[-2:]
    y = torch.empty(rows, size, dtype=weight.dtype, device=x.device)
    total = x if residual is None else torch.empty_like(y)
    _add_rms_norm[(rows,)](
        x, x if residual is None else residual, weight, y, total, rows, size, eps,
        PARTS=parts, RESIDUAL=residual is not None, BLOCK=next_power_of_2(size),
        # few rows: many warps a row, to be done sooner; many rows: fewer, to fill the chip
        num_warps=8 if rows <= 1024 else 4, **options,
    )  # fmt: skip
    return y, total
