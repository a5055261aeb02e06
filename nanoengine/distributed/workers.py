"""The worker processes of one engine: told what to do, watched, and ended whatever happens."""

import contextlib
import os
import select
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait

from nanoengine.distributed import rpc
from nanoengine.distributed.group import TPGroup
from nanoengine.distributed.peer import GRACE_SECONDS, Peer, check, diagnose
from nanoengine.errors import CollectiveError, EngineError, WorkerError

_END_SECONDS = 5.0  # for an orderly end
_WATCH_SECONDS = 0.5


class Workers:
    """The worker processes of one engine, and the means to command them.

    group: rank 0's TPGroup. Whoever holds no reference to this object any more ends the workers;
    so do `close()`, the end of the interpreter, and an exception inside `supervise()`.
    """

    def __init__(self, buffer: memoryview, seconds: float) -> None:
        self.group = TPGroup()  # until they have met
        self.peers: list[Peer] = []
        self.sender, self.seconds = rpc.Sender(buffer, self.peers, seconds), seconds
        self.failure: str | None = None  # why they have ended
        self.told = False  # a first step: before it ranks compile, each at its own pace
        self.waiting: tuple[int, float] | None = None  # rank 0's GPU waits for a rank, since then
        self.done_at: float | None = None  # when rank 0 was done with its part of a step
        self.lost = threading.Event()  # a worker has ended by itself
        self.watcher = threading.Thread(
            target=_watch, args=(weakref.ref(self),), name="nanoengine-worker-watch", daemon=True
        )
        self._met: list[TPGroup] = []
        self._end = weakref.finalize(
            self, _end, self.peers, self.sender, self.watcher, os.getpid(), self._met
        )

    def met(self, group: TPGroup) -> None:
        """The ranks have met in this group; called again, it has got an inbox."""
        self.group = group
        self._met[:] = [group]

    def send(self, kind: int, values: Iterable[int] = ()) -> None:
        """Tell every worker what to do next; use inside `supervise()`."""
        self.told = True
        self.sender.send(kind, values)

    @contextmanager
    def supervise(self) -> Iterator[None]:
        """Around what the ranks do together: any exception ends the workers.

        After it they could no longer be in step. Raises WorkerError when a worker is the cause,
        and EngineError when they have ended before.
        """
        if not self._end.alive:
            raise EngineError(f"the workers have ended ({self.failure}): make a new LLM")
        self.done_at = None
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise
        self.done_at = time.monotonic()

    def _fail(self, error: BaseException) -> None:
        """End the workers; raise WorkerError instead of `error` where one of them is to blame."""
        cause: BaseException | None = None
        try:
            if isinstance(error, CollectiveError):
                cause = diagnose(self.peers, str(error))
            elif isinstance(error, Exception):
                check(self.peers)
        except WorkerError as found:
            cause = found
        finally:
            self.failure = repr(cause or error).splitlines()[0]
            for peer in self.peers:
                peer.process.kill()
            self.close()
        if cause is not None:
            raise cause from error

    def check(self) -> None:
        """Raises WorkerError when a worker has ended: what the device computed is worth nothing."""
        if self.lost.is_set():
            with self.supervise():
                raise CollectiveError("a worker has ended")

    def close(self) -> None:
        """End the workers and wait until they are gone; a second call does nothing."""
        self.failure = self.failure or "closed"
        self._end()
        self._met.clear()
        # torch's group holds a dozen descriptors and threads: let go of it, not only of the workers
        self.group = TPGroup(self.group.rank, self.group.size)

    def hanging(self) -> list[Peer]:
        """Workers that rank 0, or its GPU, has waited for for `seconds`.

        Rank 0 waits once it is done with its part of a step. Its GPU may wait before: then rank 0
        may even be stuck in a launch, since the device takes no more while a kernel waits.
        """
        now = time.monotonic()
        inbox = self.group.inbox if self.told else None
        rank = None if inbox is None else inbox.waits_for()
        if rank is None or self.waiting is None or self.waiting[0] != rank:
            self.waiting = None if rank is None else (rank, now)
        elif now - self.waiting[1] >= self.seconds:
            return [peer for peer in self.peers if peer.rank == rank]
        if self.done_at is None or now - self.done_at < self.seconds:
            return []
        return [p for p in self.peers if not p.idle and not select.select([p.bell], [], [], 0)[0]]


def _watch(reference: "weakref.ReferenceType[Workers]") -> None:
    """Thread: while rank 0 is busy or waits, see whether a worker has ended, or hangs."""
    while (workers := reference()) is not None and workers.failure is None:
        with contextlib.suppress(OSError, ValueError):  # closed at this moment
            for peer in workers.hanging():
                peer.hangs = True
                peer.process.kill()
            sentinels = [peer.process.sentinel for peer in workers.peers]
            group, lost = workers.group, workers.lost
            del workers  # or nobody else could let go of it
            if wait(sentinels, _WATCH_SECONDS):
                lost.set()
                group.abort()
                return


def _end(
    peers: Sequence[Peer],
    sender: rpc.Sender,
    watcher: threading.Thread,
    owner: int,
    met: Sequence[TPGroup],
) -> None:
    """Ask the workers to end, then make them; afterwards nothing of them is left."""
    if os.getpid() != owner:  # a forked copy of the process: the workers are not its own
        return
    sender.seconds = GRACE_SECONDS
    with contextlib.suppress(Exception):  # whatever is wrong with the channel: they end below
        sender.send(rpc.EXIT)
    deadline = time.monotonic() + _END_SECONDS
    for peer in peers:
        peer.bell.close()  # also an end: who waits for a message sees that none will come
    for peer in peers:
        peer.process.join(max(0.0, deadline - time.monotonic()))
        peer.process.kill()
        peer.process.join()
    if watcher.is_alive() and watcher is not threading.current_thread():
        watcher.join()  # it may be ending the group at this moment: one after the other
    for group in met:
        group.abort()
    for peer in peers:
        peer.process.close()
