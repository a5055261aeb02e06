"""Tensors in contracts: made from a seed, returned as nested lists, compared with a tolerance."""

from collections.abc import Callable
from typing import Any

import torch

from nanoengine.course.values import Difference, plain, show

TOLERANCE = 1e-4  # float32 sums of a few dozen terms in another order differ by 1e-6


def random_tensor(seed: int, *shape: int) -> torch.Tensor:
    """float32 normal numbers, the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def call_with_tensors(function: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """The result as plain data, and the position of the first tensor argument that was changed.

    Bits are compared: memory that holds NaN equals itself.
    """
    before = [arg.clone() if isinstance(arg, torch.Tensor) else None for arg in args]
    result = function(*args)
    changed = None
    for index, (arg, old) in enumerate(zip(args, before, strict=True)):
        if old is not None and changed is None and not same_bits(arg, old):
            changed = index
    if isinstance(result, torch.Tensor):
        return {"result": result.tolist(), "shape": list(result.shape), "changed": changed}
    return {"result": plain(result), "shape": None, "changed": changed}


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal element by element, NaN included."""
    return torch.equal(torch.nan_to_num(left, nan=1e30), torch.nan_to_num(right, nan=1e30))


def not_a_tensor(expected: Any, got: Any, names: tuple[str, ...]) -> Difference | None:
    """Words for a result of another kind or shape, or a changed argument; else None."""
    if got["result"] is None:
        return Difference("expected a tensor, you returned None: is a `return` missing?")
    if got["shape"] is None:
        return Difference(f"expected a tensor, you returned {show(got['result'])}")
    if got["shape"] != expected["shape"]:
        return Difference(f"expected shape {expected['shape']}, you returned {got['shape']}")
    if got["changed"] is not None:
        return Difference(
            f"your function changed its argument {names[got['changed']]}, which belongs to the "
            "caller: work on a copy"
        )
    return None


def first_far_row(expected: Any, got: Any, tolerance: float = TOLERANCE) -> int | None:
    """Index along dimension 0 of the first row that is not close (NaN is never close)."""
    wanted, given = torch.tensor(expected), torch.tensor(got)
    close = torch.isclose(given.float(), wanted.float(), atol=tolerance, rtol=tolerance)
    far = (~close.flatten(1).all(1)).nonzero().flatten()
    return int(far[0]) if len(far) else None
