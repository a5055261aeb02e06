"""Memory of one GPU that the other GPUs of this host can write: where ranks put sums' parts.

CUDA lets a process open another one's memory (its IPC calls): the owner asks for a handle of 64
bytes, and whoever gets it maps the memory into its own addresses. Torch's caching allocator knows
nothing of this memory, which is taken from the driver itself.
"""

import ctypes
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from nanoengine.distributed.group import TPGroup
from nanoengine.errors import EngineError

# Bytes that one kernel sums faster than NCCL, by ranks: each rank sends its part to all others,
# which among many is soon more than NCCL's ring does (the limits of vLLM's custom all_reduce).
ONE_SHOT_BYTES = {2: 4 << 20, 4: 512 << 10, 8: 256 << 10}
SMALL_ROW_BYTES = 8 << 10  # a sum of so short rows may have ONE_SHOT_BYTES
_LAZY_PEER_ACCESS = 1  # cuIpcOpenMemHandle: let this GPU reach the other one
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

    rows: of the largest sum. boxes: what the kernels need to know, once `connect` was called.
    """

    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        from nanoengine.kernels import all_reduce  # needs Triton
        from nanoengine.kernels.capability import detect
        from nanoengine.kernels.pdl import launch_options

        self._kernels, self._options = all_reduce, launch_options(detect(device).pdl)
        self.rank, self.device = rank, device
        self.limit, self.rows = ONE_SHOT_BYTES[ranks], ONE_SHOT_BYTES[ranks] // SMALL_ROW_BYTES
        self._flags_at = 2 * ranks * self.rows * all_reduce.ROW_BYTES
        size = self._flags_at + ranks * self.rows * torch.int64.itemsize
        self._counts = torch.zeros(self.rows, dtype=torch.int64, device=device)
        self._stop = torch.zeros(1, dtype=torch.int64, pin_memory=True)
        torch.cuda.synchronize(device)  # the driver's calls need torch's CUDA context
        address = ctypes.c_uint64()
        _cuda("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self._own = address.value
        self._mapped: list[int] = []
        weakref.finalize(self, _release, device, self._own, self._mapped).atexit = False
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
        self.boxes = self._kernels.Mailboxes(self.rank, inboxes, flags, self._counts, self._stop)

    def fits(self, shape: Sequence[int], dtype: torch.dtype) -> bool:
        """Whether a sum of this shape, [rows, size], is small enough for one kernel."""
        rows, row_bytes = shape[0], shape[1] * dtype.itemsize
        aligned = row_bytes <= self._kernels.ROW_BYTES and row_bytes % 16 == 0
        return aligned and rows <= self.rows and rows * row_bytes <= self.limit

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

    def free(self) -> None:
        """Let kernels that wait for a rank that is gone go on, for ever; no sum is right any more.

        Calls nothing of CUDA: the host may be inside it, waiting for such a kernel.
        """
        self._stop.fill_(1)


def _release(device: torch.device, own: int, mapped: list[int]) -> None:
    """Give the memory back. Whoever could still use the addresses is gone with the Inbox."""
    torch.cuda.synchronize(device)
    for address in mapped:
        _cuda("cuIpcCloseMemHandle", ctypes.c_uint64(address))
    _cuda("cuMemFree_v2", ctypes.c_uint64(own))


def with_inbox(group: TPGroup) -> TPGroup:
    """The GPUs' group with an inbox on each; as it was, and NCCL sums, where that cannot be."""
    inbox, reason = None, why_not(group.size)
    try:
        if reason is None:
            device = torch.device("cuda", torch.cuda.current_device())
            inbox = Inbox(group.rank, group.size, device)
            group.store.set(f"handle/{group.rank}", inbox.handle())
    except EngineError as error:
        reason = str(error)
    if not group.agree("inboxes exist", int(reason is None)):
        return _without(group, reason)
    assert inbox is not None
    try:
        inbox.connect([group.store.get(f"handle/{rank}").decode() for rank in range(group.size)])
    except EngineError as error:
        reason = str(error)
    if not group.agree("inboxes are open", int(reason is None)):
        return _without(group, reason)
    return replace(group, inbox=inbox)


def _without(group: TPGroup, reason: str | None) -> TPGroup:
    if reason is not None:
        warnings.warn(f"NCCL sums over the ranks, not one kernel: {reason}", stacklevel=2)
    return group
