"""What rank 0 knows of a worker, and finding out which one is to blame when a step fails."""

import contextlib
import json
import select
import signal
import socket
import struct
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from typing import Any

from nanoengine.distributed import rpc, worker
from nanoengine.errors import CollectiveError, WorkerError

GUARD_EXIT = 87  # exit code of a worker that imports a main module without a guard
GRACE_SECONDS = 1.0  # for a failing worker's report to arrive
_LONGEST_POLL = 2**31 - 1  # milliseconds, in C an int
_GUARD = (
    "each worker process imports this program's main module again, and that makes an engine with "
    'workers once more: put the program\'s own work under `if __name__ == "__main__":`'
)


class Peer:
    """Rank 0's view of one worker: its process, and the socket to it."""

    def __init__(self, rank: int, process: BaseProcess, bell: socket.socket) -> None:
        self.rank, self.process, self.bell, self.pid = rank, process, bell, process.pid
        self.idle = False  # it has said that it is done with everything
        self.hangs = False  # and was killed for it
        self.failure: dict[str, Any] | None = None  # its report
        bell.setblocking(False)  # with a timeout every byte would take two or three system calls

    def wait_idle(self, seconds: float) -> None:
        """Return when it is done with everything so far. Raises CollectiveError: late, or gone."""
        if self.idle:
            return
        try:
            idle = self._listen()
        except BlockingIOError:  # it has said nothing yet
            if not self._hears_within(seconds):
                raise CollectiveError(f"rank {self.rank} was waited for {seconds:.1f} s") from None
            idle = self._listen()
        if not idle:
            raise CollectiveError(f"rank {self.rank} has ended")

    def ring(self) -> None:
        """Tell it that a piece lies in the buffer."""
        self.idle = False
        with contextlib.suppress(OSError):  # it is gone, which the next wait finds
            self.bell.sendall(rpc.RING)

    def look(self) -> None:
        """Take in what it has said, without waiting. Raises WorkerError if that is a failure."""
        with contextlib.suppress(BlockingIOError):
            while self._listen():
                pass
        self._raise_failure()

    def _hears_within(self, seconds: float) -> bool:
        poll = select.poll()  # (unlike select, of any number of open files)
        poll.register(self.bell, select.POLLIN)
        return bool(poll.poll(min(1e3 * seconds, _LONGEST_POLL)))

    def _listen(self) -> bool:
        """Read one byte and what belongs to it; False: nothing will come any more.

        Raises BlockingIOError when it has not come yet.
        """
        try:
            said = self.bell.recv(1)
        except BlockingIOError:
            raise
        except OSError:  # reset: it was killed
            said = b""
        if said == worker.FAILED:
            self.bell.settimeout(GRACE_SECONDS)
            with contextlib.suppress(OSError, struct.error, ValueError):  # killed while reporting
                head = self.bell.recv(worker.REPORT_LENGTH.size, socket.MSG_WAITALL)
                (length,) = worker.REPORT_LENGTH.unpack(head)
                self.failure = json.loads(self.bell.recv(length, socket.MSG_WAITALL))
            self.bell.setblocking(False)
        self.idle = said == rpc.IDLE
        return self.idle

    def _raise_failure(self) -> None:
        if self.hangs:
            raise self.error(
                "hangs: rank 0 waits for it in vain (if it is only slow, raise worker_timeout)"
            )
        if self.failure is not None and not self.failure["secondary"]:
            raise self.error(
                f"raised {self.failure['text']}\n\nits traceback:\n{self.failure['traceback']}"
            )
        self.process.join(0)
        code = self.process.exitcode
        if code is None or self.failure is not None:
            return
        if code == GUARD_EXIT:
            raise self.error(f"could not start: {_GUARD}", code)
        what = f"ended with exit code {code}: what it wrote stands above"
        if code < 0:
            what = f"was killed by {signal.Signals(-code).name} (too little memory, perhaps)"
        raise self.error(what, code)

    def error(self, what: str, exitcode: int | None = None) -> WorkerError:
        """A WorkerError that names this worker."""
        text = f"rank {self.rank} (process {self.pid}) {what}"
        return WorkerError(f"{text}\nIts engine is closed: make a new LLM.", self.rank, exitcode)


def check(peers: Sequence[Peer]) -> None:
    """Raises WorkerError when a worker is known to have failed."""
    for peer in peers:
        peer.look()


def diagnose(peers: Sequence[Peer], why: str) -> WorkerError | None:
    """Who is to blame when ranks waited for each other in vain; None: none of the workers.

    A worker that failed says so, or its process has ended. When none did, the one that neither
    answers nor complains is the one that hangs.
    """
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline:
        try:
            check(peers)
        except WorkerError as error:
            return error
        time.sleep(GRACE_SECONDS / 20)
    for peer in peers:
        if peer.failure is None and not peer.idle:
            return peer.error(f"hangs: it did not come to where the others waited ({why})")
    for peer in peers:
        if peer.failure is not None:
            return peer.error(f"raised {peer.failure['text']}")
    return None
