"""What a C kernel may be given: pointers know neither a dtype, nor a shape, nor gaps."""

import torch


def plain(*tensors: torch.Tensor) -> bool:
    """Whether all of them are float32, without gaps."""
    for x in tensors:  # noqa: SIM110  (all() of a generator takes twice as long)
        if x.dtype is not torch.float32 or not x.is_contiguous():
            return False
    return True


def integers(x: torch.Tensor, *shape: int) -> bool:
    """Whether x is int32, of this shape, without gaps."""
    return x.dtype is torch.int32 and x.shape == shape and x.is_contiguous()


def heads_together(x: torch.Tensor) -> bool:
    """Whether x, [n, heads, dim], is float32 and the heads of a token lie side by side."""
    return x.dtype is torch.float32 and x.stride()[1:] == (x.shape[2], 1)
