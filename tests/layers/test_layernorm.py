"""RMSNorm: right in every dtype, and its inputs stay as they are."""

import pytest
import torch

from nanoengine.layers.activation import silu_and_mul
from nanoengine.layers.layernorm import RMSNorm

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def make_norm(size: int, dtype: torch.dtype, eps: float = 1e-5) -> RMSNorm:
    """A norm with gains other than 1."""
    norm = RMSNorm(size, eps).to(dtype)
    norm.weight.data = (torch.rand(size, generator=torch.Generator().manual_seed(1)) + 0.5).to(
        dtype
    )
    return norm.requires_grad_(False)


def expected(norm: RMSNorm, x: torch.Tensor) -> torch.Tensor:
    """The formula, in float64."""
    wide = x.double()
    scaled = wide / (wide.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()
    return scaled * norm.weight.double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 16), (1, 16), (3, 4, 16)])
def test_values_and_untouched_inputs(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    norm = make_norm(16, dtype)
    generator = torch.Generator().manual_seed(0)
    x, residual = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    before = x.clone(), residual.clone()
    tolerance = {"atol": 1e-6 if dtype == torch.float32 else 3e-2, "rtol": 1e-2}
    out = norm(x)
    assert out.dtype == dtype
    assert torch.allclose(out.double(), expected(norm, x), **tolerance)
    out, total = norm.add_norm(x, residual)
    assert torch.equal(total, before[0] + before[1])
    assert torch.allclose(out.double(), expected(norm, total), **tolerance)
    assert torch.equal(x, before[0])
    assert torch.equal(residual, before[1])
    assert out.data_ptr() not in (x.data_ptr(), residual.data_ptr(), total.data_ptr())


def test_eps_counts_for_small_inputs() -> None:
    x = torch.full((1, 8), 1e-3)
    assert torch.allclose(make_norm(8, torch.float32, 1e-2)(x).double(),
                          expected(make_norm(8, torch.float32, 1e-2), x))  # fmt: skip
    assert make_norm(8, torch.float32, 1e-2)(x).abs().max() < 0.1


def test_large_half_precision_inputs_do_not_overflow() -> None:
    x = torch.full((1, 8), 3e4, dtype=torch.float16)  # its square is beyond float16
    assert torch.isfinite(make_norm(8, torch.float16)(x)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_and_mul(dtype: torch.dtype) -> None:
    x = torch.randn(3, 10, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = x.clone()
    gate, up = x[:, :5].float(), x[:, 5:].float()
    want = gate / (1 + torch.exp(-gate)) * up
    assert torch.allclose(
        silu_and_mul(x).float(), want, atol=2e-2 if dtype != torch.float32 else 1e-6
    )
    assert torch.equal(x, before)
