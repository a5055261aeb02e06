"""From host arrays to the device: one copy for all inputs of a run."""

from collections.abc import Sequence as SequenceOf

import numpy as np
import torch

from nanoengine.context import Context
from nanoengine.engine.inputs import DecodeInputs, PrefillInputs

PreparedRun = tuple[torch.Tensor, torch.Tensor, Context]
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


def prefill_run(lists: PrefillInputs, device: torch.device) -> PreparedRun:
    """A prefill's integer lists as (input_ids, positions, context) on the device."""
    arrays: list[np.ndarray] = [
        np.array(lists.input_ids, np.int64),
        np.array(lists.positions, np.int64),
        np.array(lists.slot_mapping, np.int32),
        np.array(lists.cu_seqlens_q, np.int32),
        np.array(lists.cu_seqlens_k, np.int32),
    ]
    if lists.block_tables is not None:
        arrays.append(np.array(lists.block_tables, np.int32))
    ids, positions, slots, ends_q, ends_k, *tables = upload(arrays, device)
    context = Context(
        is_prefill=True,
        slot_mapping=slots,
        cu_seqlens_q=ends_q,
        cu_seqlens_k=ends_k,
        max_seqlen_q=lists.max_seqlen_q,
        max_seqlen_k=lists.max_seqlen_k,
        block_tables=tables[0] if tables else None,
    )
    return ids, positions, context


def decode_run(lists: DecodeInputs, device: torch.device) -> PreparedRun:
    """A decode step's integer lists as (input_ids, positions, context) on the device."""
    arrays: list[np.ndarray] = [
        np.array(lists.input_ids, np.int64),
        np.array(lists.positions, np.int64),
        np.array(lists.slot_mapping, np.int32),
        np.array(lists.context_lens, np.int32),
        np.array(lists.block_tables, np.int32),
    ]
    ids, positions, slots, lengths, tables = upload(arrays, device)
    context = Context(
        is_prefill=False, slot_mapping=slots, context_lens=lengths, block_tables=tables
    )
    return ids, positions, context
