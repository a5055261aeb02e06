"""From host arrays to the device: one copy for all inputs of a run."""

from array import array as c_array
from collections.abc import Sequence as SequenceOf
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from nanoengine.context import Context
from nanoengine.engine.inputs import DecodeInputs, PrefillInputs

PreparedRun = tuple[torch.Tensor, torch.Tensor, Context]
Arrays = SequenceOf[np.ndarray]
_DTYPES = {np.dtype(name): getattr(torch, name) for name in ("int64", "int32", "float32")}
_LONG = 256  # numbers: below, both ways take a few microseconds
_ALIGN = 16  # bytes: Triton compiles a kernel anew for a pointer that is aligned differently


def upload(arrays: Arrays, device: torch.device) -> list[torch.Tensor]:
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
    return [_unpacked(packed, start, array) for start, array in zip(starts, arrays, strict=True)]


def _unpacked(packed: torch.Tensor, start: int, array: np.ndarray) -> torch.Tensor:
    """The array's part of the packed bytes, in its dtype and shape."""
    part = packed[start : start + array.nbytes].view(_DTYPES[array.dtype])
    return part if array.ndim == 1 else part.view(array.shape)


def upload_run(
    lists: PrefillInputs | DecodeInputs, device: torch.device, more: Arrays = ()
) -> tuple[PreparedRun, list[torch.Tensor]]:
    """A run's integer lists as (input_ids, positions, context) on the device.

    The arrays of `more` come in the same upload; their tensors are the second result.
    """
    run: Any = lists  # told by its fields: a student's class is neither of the two
    values = [run.slot_mapping]
    if hasattr(run, "cu_seqlens_q"):
        values += [run.cu_seqlens_q, run.cu_seqlens_k]
    else:
        values.append(run.context_lens)
    arrays = [_array(value, "q") for value in (lists.input_ids, lists.positions)]
    arrays += [_array(value, "i") for value in values]
    if lists.block_tables is not None:
        arrays.append(np.array(lists.block_tables, np.int32))
    tensors = upload([*arrays, *more], device)
    ids, positions, *rest = tensors[: len(arrays)]
    context = _context(lists, rest)
    return (ids, positions, context), tensors[len(arrays) :]


def _array(values: SequenceOf[int], code: str) -> np.ndarray:
    """Whole numbers as an array; code: "q" for int64, "i" for int32.

    Raises OverflowError for a number beyond that, TypeError for one that is not whole.
    """
    if len(values) >= _LONG:  # Python's own arrays read unsigned numbers in half of the time
        with suppress(OverflowError):  # negative: a placeholder, or a slot that is nowhere
            array = np.frombuffer(c_array(code.upper(), values), code)
            if array.min() >= 0:
                return array
    return np.array(c_array(code, values), code)


def _context(lists: Any, tensors: list[torch.Tensor]) -> Context:
    if not hasattr(lists, "cu_seqlens_q"):
        slots, lengths, tables = tensors
        return Context(
            is_prefill=False, slot_mapping=slots, context_lens=lengths, block_tables=tables
        )
    slots, ends_q, ends_k, *some_tables = tensors
    return Context(
        is_prefill=True,
        slot_mapping=slots,
        cu_seqlens_q=ends_q,
        cu_seqlens_k=ends_k,
        max_seqlen_q=lists.max_seqlen_q,
        max_seqlen_k=lists.max_seqlen_k,
        block_tables=some_tables[0] if some_tables else None,
    )
