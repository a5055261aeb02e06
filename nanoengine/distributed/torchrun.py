"""Several hosts: torchrun has started every rank, and shared memory does not reach them all.

    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:PORT script.py

runs the same script as every rank. On rank 0, `LLM(tensor_parallel_size=2)` gives an engine as
ever. On the others that call serves rank 0 until it closes its engine, and then ends the process:
what stands behind it in the script runs on rank 0 alone. torchrun itself notices a rank that
fails, and ends the others. Set GLOO_SOCKET_IFNAME where a host's name does not stand for the
network interface that reaches the other hosts.
"""

import os
import weakref
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import torch

from nanoengine.distributed import rpc
from nanoengine.distributed.group import TPGroup, c10d, connect
from nanoengine.errors import CollectiveError, ConfigError, EngineError

_IDLE_SECONDS = 30.0 * 86400  # a rank may wait so long for the next message


def is_launched() -> bool:
    """Whether torchrun has started this process."""
    return bool(c10d.is_torchelastic_launched())


def join(size: int, device: torch.device, seconds: float) -> tuple[TPGroup, TPGroup]:
    """Meet the other ranks: the group that computes, and one on CPUs that carries messages.

    Raises ConfigError when torchrun has started another number of ranks.
    """
    store, rank, ranks = next(iter(c10d.rendezvous("env://")))
    if ranks != size:
        raise ConfigError(
            f"tensor_parallel_size={size}, but torchrun has started {ranks} processes: "
            "make the two equal"
        )
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    meeting = TPGroup(rank, ranks, None, c10d.PrefixStore("meeting", store))
    meeting.agree("imported")  # only then deadlines are short
    control = connect(
        c10d.PrefixStore("control", store), rank, size, torch.device("cpu"), _IDLE_SECONDS
    )
    return connect(c10d.PrefixStore("work", store), rank, size, device, seconds), control


def receive(control: TPGroup) -> rpc.Message:
    """A rank's next message, however long it takes. Raises CollectiveError: rank 0 is gone."""
    kind, count = control.broadcast(torch.empty(2, dtype=torch.int32)).tolist()
    values = torch.empty(count, dtype=torch.int32)
    if count:
        control.broadcast(values)
    return rpc.Message(kind, array("i", values.tolist()))


class TorchrunWorkers:
    """Rank 0's view of the other ranks; what `Workers` is on one host."""

    def __init__(self, group: TPGroup, control: TPGroup) -> None:
        self.group, self._control = group, control
        self.failure: str | None = None
        self._end = weakref.finalize(self, _send_exit, control, group)

    def send(self, kind: int, values: Iterable[int] = ()) -> None:
        """Tell every rank what to do next; use inside `supervise()`."""
        _send(self._control, kind, values)

    @contextmanager
    def supervise(self) -> Iterator[None]:
        """Around what the ranks do together; after an exception they are not used again."""
        if not self._end.alive:
            raise EngineError(f"the other ranks have ended ({self.failure}): start torchrun again")
        try:
            yield
        except BaseException as error:
            self.failure = repr(error).splitlines()[0]
            self._end.detach()  # they are not where a message could reach them
            self.group.abort()
            raise

    def check(self) -> None:
        """Nothing to do: torchrun ends this process when another one fails."""

    def close(self) -> None:
        """Let the other ranks end; a second call does nothing."""
        self.failure = self.failure or "closed"
        self._end()


def _send(control: TPGroup, kind: int, values: Iterable[int]) -> None:
    payload = torch.tensor(list(values), dtype=torch.int32)
    control.broadcast(torch.tensor([kind, len(payload)], dtype=torch.int32))
    if len(payload):
        control.broadcast(payload)


def _send_exit(control: TPGroup, group: TPGroup) -> None:
    with suppress(CollectiveError):
        _send(control, rpc.EXIT, ())
    group.abort()
