"""This process's place among the tensor-parallel ranks, and what the ranks do together.

With one rank nothing is started: no process group, no port, no shared memory. The groups are
torch's own, but not its global default group: two engines may live in one process.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from nanoengine.errors import CollectiveError, EngineError

if TYPE_CHECKING:
    from nanoengine.distributed.inbox import Inbox

c10d: Any = dist  # torch's type hints do not name all of it
START_SECONDS = 600.0  # a rank may take so long to import torch, read weights or compile kernels
_NCCL_SECONDS = 600.0  # NCCL ends the process after it; a hung rank is found long before
_POLL_SECONDS = 0.01


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class TPGroup:
    """Rank and size of the tensor-parallel group that a layer's weights are cut for.

    backend: torch's process group of these ranks; None: the sizes alone, as a test of shapes
        needs them. store: the ranks' common dictionary. check: raises when a rank is known to be
        gone; called while this one waits. inbox: for sums in one kernel; None: `backend` sums.

    >>> TPGroup(rank=1, size=4).rank
    1
    """

    rank: int = 0
    size: int = 1
    backend: Any = None
    store: Any = None
    check: Callable[[], None] = _nothing
    captured: list[dict[int, Any]] = field(default_factory=list, compare=False, repr=False)
    inbox: "Inbox | None" = field(default=None, compare=False, repr=False)

    @property
    def on_gpus(self) -> bool:
        """Whether the ranks are GPUs, joined by NCCL."""
        nccl = getattr(c10d, "ProcessGroupNCCL", None)  # a CPU's torch may have none
        return nccl is not None and isinstance(self.backend, nccl)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Sum `x` over the ranks, in place; with one rank, `x` itself."""
        if self.inbox is not None and x.is_contiguous() and self.inbox.fits(x.shape, x.dtype):
            return self.inbox.all_reduce(x)
        if self.size > 1:
            self._together("allreduce", [x], _in_stream(c10d.AllreduceOptions()))
        return x

    def gather_last(self, x: torch.Tensor) -> torch.Tensor:
        """On rank 0 the ranks' `x` joined along the last axis; elsewhere `x`, nobody needs more."""
        if self.size == 1:
            return x
        parts = [torch.empty_like(x) for _ in range(self.size)] if self.rank == 0 else []
        to_rank_0 = _in_stream(c10d.GatherOptions())
        to_rank_0.rootRank = 0
        self._together("gather", [parts] if parts else [], [x.contiguous()], to_rank_0)
        return torch.cat(parts, dim=-1) if parts else x

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        """Give rank 0's `x` to every rank, in place and on the device."""
        if self.size > 1:
            from_rank_0 = _in_stream(c10d.BroadcastOptions())
            from_rank_0.rootRank = 0
            self._together("broadcast", [x], from_rank_0)
        return x

    def agree(self, what: str, value: int = 0) -> int:
        """The smallest `value` over the ranks; waits, START_SECONDS at most, for all of them.

        Goes through the store, not the device: ranks may come minutes apart, as in loading
        weights. `what` names the matter, once in a group's life.
        """
        if self.size == 1:
            return value
        if self.store is None:
            raise EngineError("this TPGroup has no store: make it with `launch`")
        self.store.set(f"{what}/{self.rank}", str(value))
        keys = [f"{what}/{rank}" for rank in range(self.size)]
        deadline = time.monotonic() + START_SECONDS
        while not self.store.check(keys):
            self.check()
            if time.monotonic() > deadline:
                raise CollectiveError(
                    f"rank {self.rank} waited {START_SECONDS:.0f} s for the others at {what!r}"
                )
            time.sleep(_POLL_SECONDS)
        return min(int(text) for text in self.store.multi_get(keys))

    def abort(self) -> None:
        """End an NCCL group, and free whoever waits in it or in an inbox for a rank that is gone.

        The captured graphs end first, or NCCL would wait for them for ever. Gloo does all of it
        itself.
        """
        if self.inbox is not None:
            self.inbox.free()
        if self.on_gpus:
            for graphs in self.captured:
                graphs.clear()
            self.backend.abort()

    def _together(self, operation: str, *args: Any) -> None:
        """Run one collective. Raises CollectiveError when another rank is gone or too late."""
        if self.backend is None:
            raise EngineError(
                f"{operation} needs the {self.size} ranks' processes, and this TPGroup has only "
                "their number: make it with `launch`"
            )
        try:
            work = getattr(self.backend, operation)(*args)
            if work is not None:  # NCCL in the stream of its neighbours: nothing to wait for
                work.wait()
        except RuntimeError as error:
            raise CollectiveError(f"rank {self.rank} in {operation}: {error}") from error


def _in_stream(options: Any) -> Any:
    """On a GPU: in the stream of the kernels around it, not in one of its own that they wait for.

    A collective then takes two events less, and in a graph it is one node in the chain.
    """
    options.asyncOp = False
    return options


SINGLE = TPGroup()


def connect(
    store: Any,
    rank: int,
    size: int,
    device: torch.device,
    seconds: float,
    address: str | None = None,
    check: Callable[[], None] = _nothing,
) -> TPGroup:
    """Join the other ranks: NCCL between GPUs, gloo between CPU processes.

    seconds: how long gloo waits for a rank in one collective. address: of the interface to use,
    "127.0.0.1" on one host; None: the one that the host's name stands for.
    """
    backend: Any
    if device.type == "cuda":
        options = c10d.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=_NCCL_SECONDS)
        backend = c10d.ProcessGroupNCCL(c10d.PrefixStore("nccl", store), rank, size, options)
    else:
        gloo = c10d.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = timedelta(seconds=seconds)
        interface = os.environ.get("GLOO_SOCKET_IFNAME")  # as torch's own groups have it
        if address:
            options._devices = [gloo.create_device(hostname=address)]
        elif interface:
            options._devices = [gloo.create_device(interface=interface)]
        else:
            options._devices = [gloo.create_default_device()]
        backend = gloo(c10d.PrefixStore("gloo", store), rank, size, options)
    return TPGroup(rank, size, backend, store, check)
