"""Matrix products with few rows, y = x W^T, where reading the weights is all the work.

Reference: `torch.nn.functional.linear`, which also serves every case that is not planned here. A
library's tiles are made for large matrices: o_proj of Qwen3-0.6B has 1024 outputs, 16 tiles of 64
for 132 multiprocessors, and takes 5.9 microseconds where its bytes need 1.0. The remedies:

- one row: no matrix unit at all, a dot product for each output;
- up to 32 rows: the weight tile is loaded before x exists (`pdl.py`), and is the tall operand;
- o_proj and down_proj at any decode size: the inner axis is split over programs as well. Each
  writes a float32 part, and the kernel that reads the result anyway (`norm.py`, `rope.py`) sums
  them: no extra launch, and always in the same order.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from nanoengine.kernels.activation import silu
from nanoengine.kernels.capability import Capability
from nanoengine.kernels.gated import gated_linear
from nanoengine.kernels.pdl import start_next, wait
from nanoengine.kernels.sizes import cdiv, next_power_of_2


@triton.jit
def _weight_rows(column, N, GATED: tl.constexpr):
    """Row of W for each output column. GATED: columns alternate between gate and up halves, so
    that a pair lies in one thread's registers and SiLU costs nothing."""
    if GATED:
        return (column % 2) * (N // 2) + column // 2
    else:  # noqa: RET505  (the compiler drops the other branch only with an else)
        return column


@triton.jit
def _gemv(
    x_ptr, w_ptr, y_ptr, N, K: tl.constexpr, BN: tl.constexpr, BLOCK_K: tl.constexpr,
    GATED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row: BN outputs a program, whole rows of W in registers before x is known."""
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BLOCK_K)
    start_next(PDL)
    row = _weight_rows(column, N, GATED).to(tl.int64)[:, None]
    w = tl.load(
        w_ptr + row * K + k[None, :], mask=(column < N)[:, None] & (k < K)[None, :], other=0.0
    )
    wait(PDL)
    x = tl.load(x_ptr + k, mask=k < K, other=0.0).to(tl.float32)
    y = tl.sum(w.to(tl.float32) * x[None, :], 1)
    if GATED:
        gate, up = tl.split(tl.reshape(y, (BN // 2, 2)))
        column = tl.program_id(0) * (BN // 2) + tl.arange(0, BN // 2)
        tl.store(y_ptr + column, (silu(gate) * up).to(y_ptr.dtype.element_ty), mask=column < N // 2)
    else:
        tl.store(y_ptr + column, y.to(y_ptr.dtype.element_ty), mask=column < N)


@triton.jit(do_not_specialize=["M"])
def _skinny(
    x_ptr, w_ptr, y_ptr, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BLOCK_K: tl.constexpr, GATED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (BN outputs, one run of BLOCK_K inputs): a single product and no loop."""
    part = tl.program_id(1)
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    m, k = tl.arange(0, BM), part * BLOCK_K + tl.arange(0, BLOCK_K)
    start_next(PDL)
    row = _weight_rows(column, N, GATED).to(tl.int64)[:, None]
    w = tl.load(
        w_ptr + row * K + k[None, :], mask=(column < N)[:, None] & (k < K)[None, :], other=0.0
    )
    wait(PDL)
    x = tl.load(
        x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0
    )
    y = tl.trans(tl.dot(w, tl.trans(x), input_precision="ieee"))
    if GATED:
        gate, up = tl.split(tl.reshape(y, (BM, BN // 2, 2)))
        half = N // 2
        column = tl.program_id(0) * (BN // 2) + tl.arange(0, BN // 2)
        inside = (m < M)[:, None] & (column < half)[None, :]
        y = (silu(gate) * up).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + m[:, None] * half + column[None, :], y, mask=inside)
    else:
        inside = (m < M)[:, None] & (column < N)[None, :]
        target = y_ptr + (part * M + m[:, None]) * N + column[None, :]
        tl.store(target, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["M", "span"])
def _split_k(
    x, w, y_ptr, M, N, K, span, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, SWAP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (row tile, column tile, run of `span` inputs); x and w are tensor descriptors.

    SWAP makes the weight tile the tall side of the matrix instruction, which is at least 64 high:
    with 64 rows or fewer of x nothing of it is wasted.
    """
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    part = tl.program_id(2)
    start_next(PDL)
    wait(PDL)
    acc = tl.zeros([BN, BM] if SWAP else [BM, BN], tl.float32)
    for k in range(part * span, tl.minimum(part * span + span, K), BK):
        a, b = x.load([row, k]), w.load([column, k])
        if SWAP:
            acc = tl.dot(b, tl.trans(a), acc, input_precision="ieee")
        else:
            acc = tl.dot(a, tl.trans(b), acc, input_precision="ieee")
    if SWAP:
        acc = tl.trans(acc)
    m, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
    target = y_ptr + (part * M + m[:, None]).to(tl.int64) * N + n[None, :]
    tl.store(target, acc, mask=(m < M)[:, None] & (n < N)[None, :])


class Plan(NamedTuple):
    """How to run one product. kind: "gemv", "skinny", "split_k", "gated" (`gated.py`) or
    "library"; parts of the inner axis; block_m, block_n: the output tile."""

    kind: str
    parts: int = 1
    block_m: int = 0
    block_n: int = 0


LIBRARY = Plan("library")


def plan_linear(
    rows: int, outputs: int, inputs: int, parts: bool, gated: bool, device: Capability
) -> Plan:
    """The plan for x [rows, inputs] and W [outputs, inputs]; measured on an H200, see the table.

    parts: the caller can take float32 parts. Microseconds a product, ours / the library's:

        rows     o_proj       down_proj    qkv_proj    gate_up with SiLU
        1        2.2 / 12.7   2.8 / 6.7    2.8 / 5.3   4.1 / 6.8
        8        2.0 / 5.9    2.4 / 6.7    3.2 / 5.2   5.4 / 6.9
        64       3.7 / 6.0    4.1 / 7.4    4.4 / 5.6   7.5 / 7.6
        256      5.0 / 6.4    6.1 / 7.7    library     library
        16,384   library      library      library     313 / 345

    and of Qwen3-4B at 16 rows: o_proj 7.5 / 9.9, down_proj 15.7 / 17.7, qkv_proj 9.6 / 11.5,
    gate_up 30.6 / 32.1; at 64 rows: 8.0 / 10.2, 16.3 / 18.6, library, 32.8 / 34.6. Qwen3-32B at
    64 rows: o_proj 25.2 / 28.3, down_proj 68.2 / 72.9; half of it, on one of two ranks: library,
    37.8 / 41.5, library, 71.6 / 74.4.
    """
    if rows == 1 and inputs <= 16_384:
        return Plan("gemv")
    tiles = cdiv(outputs, 64)
    if rows <= 32 and device.shared_memory >= 160 * 1024:
        if gated and inputs <= 1024:  # the activation needs whole sums: no split
            return Plan("skinny", 1, 16 if rows <= 16 else 32, 32 if rows <= 16 else 64)
        split = cdiv(inputs, 512 if rows <= 16 and tiles >= 64 else 256)
        if parts and tiles * split <= 3 * device.sms:
            return Plan("skinny", split, 16 if rows <= 16 else 32, 64)
    if not device.tma or device.shared_memory < 200 * 1024 or inputs % 8:
        return LIBRARY
    block_m = 16 if rows <= 16 else 32 if rows <= 32 else 64 if rows <= 128 else 128
    if gated:
        few_or_many = rows <= 64 or rows >= 1024
        return Plan("gated", 1, block_m, max(64, block_m)) if few_or_many else LIBRARY
    if parts and rows <= 512:  # one wave of programs; of the small ones three fit on an SM
        wave = device.sms * (3 if block_m <= 32 else 1)
        # wider tiles where 64 columns give more than half a wave: no second part would fit in
        for block_n in (64, 128) if inputs >= 8192 and rows <= 64 else (64,):
            programs = cdiv(rows, block_m) * cdiv(outputs, block_n)
            split = min(8, cdiv(inputs, 256), wave // programs)
            if split > 1:
                return Plan("split_k", split, block_m, block_n)
    return LIBRARY


def linear(
    x: torch.Tensor, weight: torch.Tensor, plan: Plan, gated: bool, options: dict[str, Any]
) -> torch.Tensor:
    """x [n, inputs] times weight [outputs, inputs]^T by a plan other than "library".

    Returns [n, outputs]; float32 [parts, n, outputs] when the plan splits; with `gated`, silu of
    the first half of the outputs times the second, [n, outputs / 2].
    """
    rows, (outputs, inputs) = len(x), weight.shape
    if plan.kind == "gemv":
        return _launch_gemv(x, weight, gated, options)
    if plan.kind == "gated":
        return gated_linear(x, weight, plan.block_m, plan.block_n, options)
    dtype = torch.float32 if plan.parts > 1 else x.dtype
    shape = (plan.parts, rows, outputs) if plan.parts > 1 else (rows, outputs // (1 + gated))
    y = torch.empty(shape, dtype=dtype, device=x.device)
    span = cdiv(inputs, plan.parts)
    if plan.kind == "skinny":
        _skinny[(cdiv(outputs, plan.block_n), plan.parts)](
            x, weight, y, rows, outputs, K=inputs, BM=plan.block_m, BN=plan.block_n,
            BLOCK_K=max(16, next_power_of_2(span)), GATED=gated, num_warps=4, **options,
        )  # fmt: skip
        return y
    block_k, swap, stages = 128, rows <= 64, 3 if plan.block_m <= 32 else 4
    if plan.block_n > 64:
        block_k, stages = 64, 5
    grid = (cdiv(rows, plan.block_m), cdiv(outputs, plan.block_n), plan.parts)
    _split_k[grid](
        TensorDescriptor(x, [rows, inputs], [inputs, 1], [plan.block_m, block_k]),
        TensorDescriptor(weight, [outputs, inputs], [inputs, 1], [plan.block_n, block_k]),
        y, rows, outputs, inputs, cdiv(span, block_k) * block_k, BM=plan.block_m,
        BN=plan.block_n, BK=block_k, SWAP=swap, num_warps=4,
        num_stages=stages, **options,
    )  # fmt: skip
    return y


def _launch_gemv(
    x: torch.Tensor, weight: torch.Tensor, gated: bool, options: dict[str, Any]
) -> torch.Tensor:
    """About 4,096 weights a warp: 4 outputs of 1,024 inputs, or 4 of 3,072 by four warps."""
    outputs, inputs = weight.shape
    y = torch.empty(1, outputs // (1 + gated), dtype=x.dtype, device=x.device)
    block_k = next_power_of_2(inputs)
    warps = min(8, max(1, block_k // 1024)) if block_k > 2048 else 1
    block_n = max(2, warps * 4096 // block_k)
    if gated:
        block_n *= 2
    _gemv[(cdiv(outputs, block_n),)](
        x, weight, y, outputs, K=inputs, BN=block_n, BLOCK_K=block_k, GATED=gated,
        num_warps=warps, **options,
    )  # fmt: skip
    return y
