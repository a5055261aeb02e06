"""The sum over the GPUs of one host, in one kernel: every rank writes its part to all the others.

Reference: torch's all_reduce (NCCL), and then `norm.add_rms_norm`. NCCL is made for large tensors:
the 640 KiB of 64 rows of Qwen3-32B take it 15.1 microseconds on two H200s, and are needed 128
times a decode step; here 6.1 (one row: 13.1 and 3.5). Over NVLink a GPU reaches the others' memory
by plain addresses. So a program, which owns one row on every rank, writes its part of the row into
the inbox that each other GPU keeps for it, raises its flag there, waits for the others' flags, and
adds up what has come: a part crosses the link once, and nobody asks anybody anything (the one-shot
all_reduce of TensorRT-LLM and vLLM). In a layer the RMSNorm behind the sum needs whole rows as
well, and is done at once.

Flags only grow, like the numbers of the messages in `distributed.rpc`: the k-th sum of a program
waits for flags of k or more, so that nothing has to be reset, and a replayed graph goes on
counting. An inbox has two halves, for even and odd k. A rank that writes part k + 2 has seen the
others' flags k + 1, and they raised those in a later kernel than the one that read part k.

A rank that is gone would be waited for without end, and with it the host. So whoever waits long
writes into the host's memory for whom it waits, and reads there whether to go on without.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from nanoengine.kernels.pdl import start_next, wait
from nanoengine.kernels.sizes import next_power_of_2

ROW_BYTES = 32 << 10  # of an inbox's row, whatever x has: a program must keep to its own place
_WARPS = 8
_THREADS = tl.constexpr(32 * _WARPS)


@triton.jit
def _exchange(
    x, column, inside, inbox_table, flag_table, count_ptr, host_ptr,
    RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr, ROW: tl.constexpr,
):  # fmt: skip
    """This rank's part of the program's row -> the sum of all ranks' parts, in float32.

    An inbox is [2, RANKS, ROWS, ROW elements], its flags are [RANKS, ROWS] int64; count_ptr:
    [ROWS] int64, this rank's sums so far; host_ptr: see `Mailboxes.host`.
    """
    row = tl.program_id(0)
    pointer: tl.constexpr = tl.pointer_type(x.dtype)  # the tables hold addresses as numbers
    k = tl.load(count_ptr + row) + 1
    half = (k % 2).to(tl.int32) * RANKS
    for other in tl.static_range(RANKS):
        if other != RANK:
            inbox = tl.multiple_of(tl.load(inbox_table + other).to(pointer), 16)
            tl.store(inbox + ((half + RANK) * ROWS + row) * ROW + column, x, mask=inside)
    tl.debug_barrier()  # all threads have written: only then one raises the flag for them
    for other in tl.static_range(RANKS):
        if other != RANK:
            flags = tl.load(flag_table + other).to(count_ptr.dtype)
            tl.atomic_xchg(flags + RANK * ROWS + row, k, sem="release", scope="sys")
    flags = tl.load(flag_table + RANK).to(count_ptr.dtype)
    looks, stop = 0, k * 0
    for other in tl.static_range(RANKS):
        if other != RANK:
            flag = flags + other * ROWS + row
            # adding 0 is how Triton spells a load that acquires what was written before the flag
            while (tl.atomic_add(flag, 0, sem="acquire", scope="sys") < k) & (stop == 0):
                looks += 1
                if looks % 4096 == 0:  # some milliseconds: the host's memory is far away
                    tl.store(host_ptr + 1, other)
                    # the maximum: all threads must go on, or none
                    stop = tl.max(tl.load(host_ptr + tl.arange(0, _THREADS) * 0, volatile=True), 0)
    if looks >= 4096:
        tl.store(host_ptr + 1, -1)
    tl.debug_barrier()  # one thread has seen the flags: now all may read
    inbox = tl.multiple_of(tl.load(inbox_table + RANK).to(pointer), 16)
    total = tl.zeros_like(x).to(tl.float32)
    for other in tl.static_range(RANKS):  # in the ranks' order: the same bits on every rank
        part = x
        if other != RANK:
            at = ((half + other) * ROWS + row) * ROW
            part = tl.load(inbox + at + column, mask=inside, other=0.0)
        total += part.to(tl.float32)
    tl.store(count_ptr + row, k)
    return total


@triton.jit
def _all_reduce(
    x_ptr, inbox_table, flag_table, count_ptr, host_ptr, size,
    RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr, ROW: tl.constexpr,
    BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row of x a program, in place."""
    column = tl.arange(0, BLOCK)
    inside = column < size
    start_next(PDL)
    wait(PDL)
    target = x_ptr + tl.program_id(0) * size + column
    x = tl.load(target, mask=inside, other=0.0)
    total = _exchange(
        x, column, inside, inbox_table, flag_table, count_ptr, host_ptr, RANK, RANKS, ROWS, ROW
    )
    tl.store(target, total.to(x.dtype), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _all_reduce_add_norm(
    x_ptr, residual_ptr, gain_ptr, y_ptr, total_ptr, inbox_table, flag_table, count_ptr,
    host_ptr, rows, size, eps,
    RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr, ROW: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row a program: total = residual + sum over ranks of x; y = norm(total) * gain."""
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < size
    dtype = total_ptr.dtype.element_ty
    start_next(PDL)
    gain = tl.load(gain_ptr + column, mask=inside, other=0.0).to(tl.float32)
    wait(PDL)
    old = tl.load(residual_ptr + row * size + column, mask=inside, other=0.0).to(tl.float32)
    x = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(PARTS):
        x += tl.load(x_ptr + (part * rows + row) * size + column, mask=inside, other=0.0)
    total = old + _exchange(
        x.to(dtype), column, inside, inbox_table, flag_table, count_ptr, host_ptr,
        RANK, RANKS, ROWS, ROW,
    )  # fmt: skip
    tl.store(total_ptr + row * size + column, total.to(dtype), mask=inside)
    scale = tl.rsqrt(tl.sum(total * total, 0) / size + eps)
    y = total * scale * gain
    tl.store(y_ptr + row * size + column, y.to(y_ptr.dtype.element_ty), mask=inside)


class Mailboxes(NamedTuple):
    """Where the ranks' inboxes are, as one of them sees it.

    inbox_table, flag_table: [ranks] int64 addresses. counts: [rows] int64, zeros at the start.
    host: [2] int64 in the host's memory (pinned). [0]: the host writes 1 to end all waiting.
    [1]: the rank that a kernel has waited for for milliseconds, else -1.
    """

    rank: int
    inbox_table: torch.Tensor
    flag_table: torch.Tensor
    counts: torch.Tensor
    host: torch.Tensor

    def arguments(self, dtype: torch.dtype) -> tuple[tuple[torch.Tensor, ...], dict[str, int]]:
        """The kernels' tensors, and their constants, for rows of this dtype."""
        constants = {
            "RANK": self.rank,
            "RANKS": len(self.inbox_table),
            "ROWS": len(self.counts),
            "ROW": ROW_BYTES // dtype.itemsize,
        }
        return (self.inbox_table, self.flag_table, self.counts, self.host), constants


def all_reduce(x: torch.Tensor, boxes: Mailboxes, options: dict[str, Any]) -> torch.Tensor:
    """Sum contiguous x, [n, size], over the ranks, in place; all ranks call it with equal sizes."""
    rows, size = x.shape
    tensors, constants = boxes.arguments(x.dtype)
    _all_reduce[(rows,)](
        x, *tensors, size, **constants, BLOCK=next_power_of_2(size), num_warps=_WARPS, **options
    )
    return x


def all_reduce_add_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    boxes: Mailboxes,
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    """`norm.add_rms_norm` of the ranks' sum of x; float32 parts of x are summed before.

    x: [n, size] or float32 [parts, n, size]; residual: [n, size], the same on every rank.
    """
    x = x.contiguous()
    parts = x.shape[0] if x.dim() == 3 else 1
    rows, size = residual.shape
    y, total = torch.empty_like(residual), torch.empty_like(residual)
    tensors, constants = boxes.arguments(residual.dtype)
    _all_reduce_add_norm[(rows,)](
        x, residual, weight, y, total, *tensors, rows, size, eps, **constants, PARTS=parts,
        BLOCK=next_power_of_2(size), num_warps=_WARPS, **options,
    )  # fmt: skip
    return y, total
