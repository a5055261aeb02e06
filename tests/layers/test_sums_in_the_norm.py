"""With inboxes a row-parallel layer leaves its sum over the ranks to the norm behind it."""

from typing import Any

import pytest
import torch

from nanoengine.distributed.group import TPGroup
from nanoengine.layers.layernorm import RMSNorm, rms_norm
from nanoengine.layers.linear import RowParallelLinear

RANKS, INPUTS, OUTPUTS, EPS = 2, 6, 4, 1e-6


class Kernels:
    """What the layers ask of kernels, in plain torch; a product leaves two parts where it may."""

    def linear(self, x: torch.Tensor, weight: torch.Tensor, parts: bool = False) -> torch.Tensor:
        y = x @ weight.T
        return torch.stack((y / 4, y * 3 / 4)) if parts else y

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert x.shape == residual.shape
        total = x + residual
        return rms_norm(total, weight, eps), total


class Board:
    """All ranks' inboxes: sums what the other ranks have put down before."""

    def __init__(self, rows: int) -> None:
        self.rows, self.parts, self.sums = rows, list[torch.Tensor](), 0

    def fits(self, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
        return shape[0] <= self.rows

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the norm does it")

    def add_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.sums += 1
        mine = x.sum(0) if x.ndim == 3 else x
        total = residual + sum(self.parts) + mine
        return rms_norm(total, weight, eps), total


def layers(rank: int, board: Any, bias: bool) -> tuple[RowParallelLinear, RMSNorm]:
    """A rank's layer and the norm behind it, with equal values on every rank."""
    torch.manual_seed(0)
    weight, gain = torch.randn(OUTPUTS, INPUTS), torch.rand(OUTPUTS)
    group = TPGroup(rank, RANKS, inbox=board)
    linear = RowParallelLinear(INPUTS, OUTPUTS, bias, group)
    linear.weight.data = weight[:, linear.columns]
    if linear.bias is not None:
        linear.bias.data = torch.arange(OUTPUTS, dtype=torch.float32)
    norm = RMSNorm(OUTPUTS, EPS, group)
    norm.weight.data = gain
    linear.kernels = norm.kernels = Kernels()  # type: ignore[assignment]
    return linear, norm


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [3, 50])
def test_each_sum_is_made_once_and_by_the_norm(
    bias: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(rows=8)

    def nccl(group: TPGroup, x: torch.Tensor) -> torch.Tensor:
        assert rows > board.rows, "a small sum is the inbox's"
        board.sums += 1
        return x + sum(board.parts)

    monkeypatch.setattr(TPGroup, "all_reduce", nccl)
    torch.manual_seed(1)
    x, residual = torch.randn(rows, INPUTS), torch.randn(rows, OUTPUTS)
    with torch.no_grad():
        other, _ = layers(1, board, bias)
        part = other(x[:, other.columns])
        board.parts.append(part.sum(0) if part.ndim == 3 else part)
        linear, norm = layers(0, board, bias)
        y = linear(x[:, linear.columns])
        assert board.sums == 0  # what lies between the two is this rank's alone
        assert (y.ndim == 3) == (rows == 3 and not bias)  # parts: only where the norm sums them
        normed, total = norm.add_norm(y, residual)
        whole = torch.cat((linear.weight, other.weight), 1)
        want = residual + x @ whole.T + (linear.bias if bias else 0)
    assert board.sums == 1
    torch.testing.assert_close(total, want)
    torch.testing.assert_close(normed, rms_norm(want, norm.weight, EPS))
