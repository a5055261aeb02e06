"""Linear layers whose weights are cut across tensor-parallel ranks.

A column-parallel layer cuts the output axis, so every rank computes some of the outputs; a
row-parallel layer cuts the input axis, so the ranks' results add up. Put one after the other and
a single all_reduce serves both (Megatron-LM, arXiv 1909.08053).
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn

from nanoengine.distributed.group import SINGLE, TPGroup
from nanoengine.errors import ConfigError
from nanoengine.kernels.binding import KernelLayer


class TensorSource(Protocol):
    """A tensor on disk that reads only what is indexed (safetensors' PySafeSlice)."""

    def get_shape(self) -> list[int]:
        """Sizes of the whole tensor."""
        ...

    def __getitem__(self, index: Any) -> torch.Tensor:
        """The indexed part, read from disk."""
        ...


def shard_slice(size: int, rank: int, ranks: int, what: str = "size") -> slice:
    """The part of an axis of `size` that belongs to `rank`: equal parts, in the ranks' order.

    >>> shard_slice(12, 1, 4)
    slice(3, 6, None)

    what: the axis's name, for the message. Raises ConfigError, naming it, the size and the
    ranks, when the axis cannot be divided.
    """
    if size % ranks:
        raise ConfigError(
            f"{what}={size} cannot be divided by tensor_parallel_size={ranks}: "
            "use a size that divides it"
        )
    part = size // ranks
    return slice(rank * part, (rank + 1) * part)


def load_rows(
    target: torch.Tensor, source: TensorSource, slices: Sequence[slice], part: int
) -> None:
    """Read the rows of stacked projection `part` that belong to this rank: source[slices[part]].

    target: the layer's whole weight [rows of all parts, in_features], or bias [rows of all
    parts]; part p lies behind parts 0 to p - 1. source: one projection on disk; an index reads
    only what it asks for. slices: this rank's rows of every projection. With slices
    [slice(4, 8), slice(2, 4)] part 1 is source[2:4], and goes to rows 4 and 5 of target.
    """
    start = sum(s.stop - s.start for s in slices[:part])
    rows = slices[part]
    target[start : start + rows.stop - rows.start].copy_(source[rows])


def load_columns(target: torch.Tensor, source: TensorSource, columns: slice) -> None:
    """Read this rank's columns of a weight, or the whole of a bias.

    target: [out_features, this rank's inputs], or a bias [out_features]. source: the tensor on
    disk; an index reads only what it asks for.
    """
    target.copy_(source[:, columns] if target.ndim == 2 else source[:])


class ColumnParallelLinear(KernelLayer):
    """y = x W^T + b for one or more stacked projections, each cut along its output axis.

    x: [n, in_features]; y: [n, sum(out_sizes) / ranks], this rank's part of each projection.
    slices: the outputs of each projection that this rank keeps; None: its even share.
    may_split: whoever reads y sums float32 parts [parts, n, ...] that a kernel may leave.
    """

    may_split = False

    def __init__(
        self,
        in_features: int,
        out_sizes: Sequence[int],
        bias: bool,
        group: TPGroup = SINGLE,
        slices: Sequence[slice] | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_sizes = list(out_sizes)
        if slices is None:
            slices = [shard_slice(size, group.rank, group.size) for size in out_sizes]
        self.slices = list(slices)
        rows = sum(s.stop - s.start for s in self.slices)
        self.weight = nn.Parameter(torch.empty(rows, in_features))
        self.bias = nn.Parameter(torch.empty(rows)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, in_features] -> [n, this rank's outputs]."""
        if self.kernels is not None and self.bias is None:
            return self.kernels.linear(x, self.weight, parts=self.may_split)
        return F.linear(x, self.weight, self.bias)

    def source_shape(self, name: str, part: int) -> list[int]:
        """Shape of projection `part`'s whole weight or bias on disk."""
        return [self.out_sizes[part]] + ([self.in_features] if name == "weight" else [])

    def load(self, name: str, source: TensorSource, part: int) -> None:
        """Read this rank's rows of projection `part` into its place in the stacked parameter."""
        load_rows(getattr(self, name).data, source, self.slices, part)


class QKVParallelLinear(ColumnParallelLinear):
    """Queries, keys and values in one product: [n, hidden] -> [n, (heads + 2 kv_heads) * head_dim].

    With fewer kv heads than ranks each kv head is kept by several ranks.
    """

    may_split = True

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        bias: bool,
        group: TPGroup = SINGLE,
    ) -> None:
        copies = max(1, group.size // kv_heads)  # ranks that hold the same kv head
        kv_ranks, kv_rank = group.size // copies, group.rank // copies
        if copies > 1 and group.size % kv_heads:
            raise ConfigError(
                f"num_key_value_heads={kv_heads} neither divides nor is divided by "
                f"tensor_parallel_size={group.size}: use a size that does"
            )
        shard_slice(heads, group.rank, group.size, "num_attention_heads")
        shard_slice(kv_heads, kv_rank, kv_ranks, "num_key_value_heads")
        q_slice = shard_slice(heads * head_dim, group.rank, group.size)
        kv_slice = shard_slice(kv_heads * head_dim, kv_rank, kv_ranks)
        sizes = [heads * head_dim] + [kv_heads * head_dim] * 2
        super().__init__(hidden, sizes, bias, group, [q_slice, kv_slice, kv_slice])
        self.num_heads = heads // group.size
        self.num_kv_heads = kv_heads // kv_ranks


class RowParallelLinear(KernelLayer):
    """y = sum over ranks of x_rank W_rank^T, plus the bias once: [n, in/ranks] -> [n, out].

    With kernels the sums that are left, over float32 parts and over ranks that have inboxes, are
    made by the RMSNorm behind it, `RMSNorm.add_norm`: it must be what reads y.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool, group: TPGroup = SINGLE
    ) -> None:
        super().__init__()
        self.group = group
        self.columns = shard_slice(in_features, group.rank, group.size, "in_features")
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(
            torch.empty(out_features, self.columns.stop - self.columns.start)
        )
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, this rank's inputs] -> [n, out_features], the same on every rank.

        With kernels perhaps float32 [parts, n, out_features]; with an inbox this rank's y alone.
        """
        inbox = None if self.kernels is None else self.group.inbox
        sum_later = inbox is not None
        if self.kernels is not None and self.bias is None:
            small = inbox is not None and inbox.fits((len(x), self.out_features), x.dtype)
            y = self.kernels.linear(x, self.weight, parts=small or self.group.size == 1)
        else:  # the bias is added by rank 0 alone: after the sum every rank has it exactly once
            y = F.linear(x, self.weight, self.bias if self.group.rank == 0 else None)
        return y if sum_later else self.group.all_reduce(y)

    def source_shape(self, name: str, part: int) -> list[int]:
        """Shape of the whole weight or bias on disk."""
        return [self.out_features] + ([self.in_features] if name == "weight" else [])

    def load(self, name: str, source: TensorSource, part: int) -> None:
        """Read this rank's columns of the weight, or the whole bias."""
        load_columns(getattr(self, name).data, source, self.columns)
