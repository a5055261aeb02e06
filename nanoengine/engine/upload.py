"""From host arrays to the device: one copy for all inputs of a run."""

from collections.abc import Sequence as SequenceOf

import numpy as np
import torch

_ALIGN = 16  # bytes: Triton compiles a kernel anew for a pointer that is aligned differently


def upload(arrays: SequenceOf[np.ndarray], device: torch.device) -> list[torch.Tensor]:
    """The arrays as tensors of the same shapes and dtypes on `device`, without waiting.

    On a GPU they are packed end to end into fresh pinned memory (the last step's may still be on
    its way) and arrive in a single copy: each copy costs some ten microseconds of the host's time,
    whatever its size. On a CPU nothing is copied.
    """
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    starts, size = [], 0
    for array in arrays:
        starts.append(size)
        size += -(-array.nbytes // _ALIGN) * _ALIGN
    pinned = torch.empty(max(size, _ALIGN), dtype=torch.uint8, pin_memory=True)
    host = pinned.numpy()
    for start, array in zip(starts, arrays, strict=True):
        host[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    packed = pinned.to(device, non_blocking=True)
    return [
        packed[start : start + array.nbytes]
        .view(torch.from_numpy(array[:0]).dtype)
        .view(array.shape)
        for start, array in zip(starts, arrays, strict=True)
    ]
