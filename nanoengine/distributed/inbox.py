"""Memory of one GPU that the other GPUs of this host can write: where ranks put sums' parts.

CUDA lets a process open another one's memory (its IPC calls): the owner asks for a handle of 64
bytes, and whoever gets it maps the memory into its own addresses. Torch's caching allocator knows
nothing of this memory, which is taken from the driver itself.
"""

import contextlib
import ctypes
import os
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from nanoengine.config import DTYPES
from nanoengine.distributed.group import TPGroup
from nanoengine.errors import EngineError

# Bytes of the largest sum in one kernel, by ranks. Each rank sends its part to all others, which
# among many is soon more than NCCL's ring does. For 4 and 8 ranks the limits of vLLM's one-shot
# all_reduce; two ranks gain up to any size that a decode step has (256 rows of Qwen3-32B: 12.9
# microseconds, NCCL 34).
ONE_SHOT_BYTES = {2: 4 << 20, 4: 512 << 10, 8: 256 << 10}
_BYTES_PER_ROW = 8 << 10  # of that limit: 512, 64 or 32 rows, each with a place of 32 KiB
_LAZY_PEER_ACCESS = 1  # cuIpcOpenMemHandle: let this GPU reach the other one
_NOBODY = -1  # as the kernel writes it
_NATIVE_ATOMICS = 3  # cuDeviceGetP2PAttribute: true over NVLink, not over PCIe


class _Handle(ctypes.Structure):
    """CUipcMemHandle, passed by value."""

    _fields_ = (("reserved", ctypes.c_byte * 64),)


def _cuda(name: str, *args: Any) -> None:
    """Call a function of the CUDA driver. Raises EngineError when it fails, or is not there."""
    try:
        code = getattr(ctypes.CDLL("libcuda.so.1"), name)(*args)
    except (OSError, AttributeError) as error:
        raise EngineError(f"the CUDA driver cannot be called: {error}") from None
    if code:
        raise EngineError(f"{name} of the CUDA driver failed with error {code}")


def why_not(ranks: int) -> str | None:
    """Why GPUs 0 to ranks - 1 cannot write into each other's memory; None: they can."""
    if ranks not in ONE_SHOT_BYTES:
        return f"{ranks} ranks: it is made for {', '.join(map(str, ONE_SHOT_BYTES))}"
    able = ctypes.c_int()
    for one in range(ranks):
        for other in range(ranks):
            if one == other:
                continue
            try:
                _cuda("cuDeviceGetP2PAttribute", ctypes.byref(able), _NATIVE_ATOMICS, one, other)
            except EngineError as error:
                return str(error)
            if not able.value:
                return f"GPU {one} and GPU {other} have no NVLink between them"
    return None


class Inbox:
    """This rank's inbox and flags, and the addresses of all ranks'; see `kernels.all_reduce`.

    limit, rows: bytes and rows of the largest sum. boxes: what the kernels need to know, once
    `connect` was called. The memory (64 MiB for two ranks) lives as long as this object.
    """

    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        from nanoengine.kernels import all_reduce  # needs Triton
        from nanoengine.kernels.capability import detect
        from nanoengine.kernels.pdl import launch_options

        self._kernels, self._options = all_reduce, launch_options(detect(device).pdl)
        self.rank, self.device = rank, device
        self.limit, self.rows = ONE_SHOT_BYTES[ranks], ONE_SHOT_BYTES[ranks] // _BYTES_PER_ROW
        self._flags_at = 2 * ranks * self.rows * all_reduce.ROW_BYTES
        size = self._flags_at + ranks * self.rows * torch.int64.itemsize
        self._counts = torch.zeros(self.rows, dtype=torch.int64, device=device)
        self._host = torch.tensor([0, _NOBODY], dtype=torch.int64).pin_memory()
        torch.cuda.synchronize(device)  # the driver's calls need torch's CUDA context
        address = ctypes.c_uint64()
        _cuda("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self._own = address.value
        self._mapped: list[int] = []
        weakref.finalize(
            self, _release, device, self._own, self._mapped, os.getpid()
        ).atexit = False  # the end of the process gives it back, too
        _cuda("cuMemsetD8_v2", address, 0, ctypes.c_size_t(size))
        torch.cuda.synchronize(device)

    def handle(self) -> str:
        """What another rank needs to open this memory."""
        handle = _Handle()
        _cuda("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(self._own))
        return bytes(handle).hex()

    def connect(self, handles: Sequence[str]) -> None:
        """Open all ranks' memory by their handles, in rank order."""
        addresses = []
        for rank, text in enumerate(handles):
            address = ctypes.c_uint64(self._own)  # a process cannot open its own
            if rank != self.rank:
                handle = _Handle.from_buffer_copy(bytes.fromhex(text))
                _cuda("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, _LAZY_PEER_ACCESS)
                self._mapped.append(address.value)
            addresses.append(address.value)
        inboxes = torch.tensor(addresses, dtype=torch.int64, device=self.device)
        flags = inboxes + self._flags_at
        self.boxes = self._kernels.Mailboxes(self.rank, inboxes, flags, self._counts, self._host)

    def disconnect(self) -> None:
        """Close the other ranks' memory: they may give it back only then."""
        _close(self._mapped)

    def fits(self, shape: Sequence[int], dtype: torch.dtype) -> bool:
        """Whether one kernel sums tensors like this: [rows, size], small enough, of floats."""
        if len(shape) != 2 or dtype not in DTYPES.values():
            return False
        rows, row_bytes = shape[0], shape[1] * dtype.itemsize
        in_place = row_bytes <= self._kernels.ROW_BYTES and rows <= self.rows
        return in_place and rows * row_bytes <= self.limit

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Sum `x`, [n, size], over the ranks, in place; for what `fits`."""
        return self._kernels.all_reduce(x, self.boxes, self._options)

    def add_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm(sum + residual), sum + residual), sum over the ranks' x; for what `fits`."""
        return self._kernels.all_reduce_add_norm(
            x, residual, weight, eps, self.boxes, self._options
        )

    def waits_for(self) -> int | None:
        """The rank that a kernel on this rank's GPU has been waiting for for milliseconds."""
        rank = int(self._host[1])
        return None if rank == _NOBODY else rank

    def free(self) -> None:
        """Let kernels that wait for a rank that is gone go on, for ever; no sum is right any more.

        Calls nothing of CUDA: the host may be inside it, waiting for such a kernel.
        """
        self._host[0] = 1


def _close(mapped: list[int]) -> None:
    """Forget other ranks' memory; one that cannot be closed (its owner was killed) is no matter."""
    while mapped:
        with contextlib.suppress(EngineError):
            _cuda("cuIpcCloseMemHandle", ctypes.c_uint64(mapped.pop()))


def _release(device: torch.device, own: int, mapped: list[int], owner: int) -> None:
    """Give the memory back. Whoever could still use the addresses is gone with the Inbox."""
    if os.getpid() != owner:  # a forked copy of the process: the memory is not its own
        return
    try:
        torch.cuda.synchronize(device)
    finally:
        _close(mapped)
        _cuda("cuMemFree_v2", ctypes.c_uint64(own))


def with_inbox(group: TPGroup) -> TPGroup:
    """The GPUs' group with an inbox on each; as it was, and NCCL sums, where that cannot be."""
    device = torch.device("cuda", torch.cuda.current_device())  # which starts CUDA, if need be
    if why_not(group.size) is not None:  # the same on every rank; `nanoengine doctor` tells it
        return group
    inbox: Inbox | None = None
    failure: Exception | None = None
    try:
        inbox = Inbox(group.rank, group.size, device)
        group.store.set(f"handle/{group.rank}", inbox.handle())
    except (EngineError, ImportError, RuntimeError) as error:  # a driver, no Triton, no memory
        failure = error
    if not group.agree("inboxes exist", int(failure is None)):
        return _without(group, failure)
    assert inbox is not None
    try:
        inbox.connect([group.store.get(f"handle/{rank}").decode() for rank in range(group.size)])
    except EngineError as error:
        failure = error
    if group.agree("inboxes are open", int(failure is None)):
        return replace(group, inbox=inbox)
    inbox.disconnect()
    group.agree("inboxes are closed")  # only then each gives back its own
    return _without(group, failure)


def _without(group: TPGroup, failure: Exception | None) -> TPGroup:
    if failure is not None:
        warnings.warn(
            f"rank {group.rank}: NCCL does all sums over the ranks, for {failure}", stacklevel=3
        )
    return group
