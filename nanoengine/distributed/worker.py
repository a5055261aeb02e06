"""A worker process: one rank above 0, which does what rank 0 says."""

import contextlib
import ctypes
import importlib
import json
import mmap
import multiprocessing
import os
import signal
import socket
import struct
import sys
import threading
import traceback
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from nanoengine.distributed.group import TPGroup, c10d, connect
from nanoengine.distributed.inbox import with_inbox
from nanoengine.distributed.rpc import EXIT, IDLE, Message, Receiver
from nanoengine.errors import CollectiveError, EngineError

Handler = Callable[["array[int]"], None]
Build = Callable[[TPGroup, dict[str, Any]], Mapping[int, Handler]]
LOOPBACK = "127.0.0.1"
FAILED = b"E"  # up the socket: a report follows, its length first
REPORT_LENGTH = struct.Struct("<I")
REPORT_LIMIT = 1 << 16  # bytes of a report; of a longer traceback the end matters
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class WorkerSpec:
    """Everything that a worker is told at its start; travels as JSON.

    target: "module:function", called as function(group, args); gives {message kind: handler}.
    setup: [("module:function", keyword arguments)], called before. seconds: see `connect`.
    inbox: whether GPUs sum in one kernel, where they can.
    follow_thread: the kernel may tie this worker to the thread that started it.
    """

    rank: int
    size: int
    port: int
    device: str
    seconds: float
    threads: int
    target: str
    args: dict[str, Any] = field(default_factory=dict)
    setup: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    follow_thread: bool = False
    inbox: bool = False

    def to_json(self) -> str:
        """The spec as text. Raises TypeError for an argument that JSON has no words for."""
        return json.dumps(asdict(self))


_setups: list[tuple[str, dict[str, Any]]] = []
# Kept until the process ends, at once and with nothing taken down: taking an NCCL group down
# waits for all graphs that hold its collectives.
_joined: list[TPGroup] = []


@contextmanager
def worker_setup(function: str, **args: Any) -> Iterator[None]:
    """Workers that are started inside the `with` block first call `function(**args)`.

    function: "package.module:name", which the worker imports; args: what JSON can say. So a
    change that was made in this process (a replaced function, given as source text) can be made
    in the workers too.
    """
    entry = (function, json.loads(json.dumps(args)))
    _setups.append(entry)
    try:
        yield
    finally:
        _setups.remove(entry)


def current_setups() -> list[tuple[str, dict[str, Any]]]:
    """What `worker_setup` blocks ask for now, outermost first."""
    return list(_setups)


def resolve(name: str) -> Callable[..., Any]:
    """The function that "package.module:name" stands for."""
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute, None)
    if not callable(found):
        raise EngineError(f"{name!r} names no function: write it as 'package.module:name'")
    function: Callable[..., Any] = found
    return function


def worker_loop(receive: Callable[[], Message], handlers: Mapping[int, Handler]) -> None:
    """Wait for a message, read it, run what it asks for; again and again, until EXIT.

    receive: waits and reads, as `Receiver.receive` does. handlers: {kind: function of the
    message's int32 values}; what one raises ends the loop. Raises EngineError for a kind that
    has no handler: skipping it would leave the other ranks waiting for this one.
    """
    while True:
        kind, values = receive()
        if kind == EXIT:
            return
        if kind not in handlers:
            raise EngineError(f"message kind {kind} has no handler: known are {sorted(handlers)}")
        handlers[kind](values)


def worker_main(bell: socket.socket, spec_text: str, copied: socket.socket | None = None) -> None:
    """Entry point of a worker process. A failure goes to rank 0, traceback included.

    copied: rank 0's end of the socket in a forked worker, which would keep it open.
    """
    if copied is not None:
        copied.close()
    spec = WorkerSpec(**json.loads(spec_text))
    _follow_parent(spec.follow_thread)
    code = 1
    try:
        _serve(bell, spec)
        code = 0
    except EOFError:  # rank 0 is gone: nobody is left to tell
        pass
    except BaseException as error:
        report(bell, error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # at once: taking the interpreter down would only keep rank 0 waiting


def _serve(bell: socket.socket, spec: WorkerSpec) -> None:
    for name, args in spec.setup:
        resolve(name)(**args)
    build: Build = resolve(spec.target)
    device = torch.device(spec.device)
    if device.type == "cuda":
        torch.cuda.set_device(spec.rank)
    else:
        torch.set_num_threads(spec.threads)
    _, (descriptor, *_), _, _ = socket.recv_fds(bell, 1, maxfds=1)
    with os.fdopen(descriptor, "r+b") as segment:
        buffer = memoryview(mmap.mmap(segment.fileno(), 0))
    bell.sendall(IDLE)  # the ranks meet when all are there: only then deadlines are short
    store = c10d.TCPStore(LOOPBACK, spec.port, is_master=False, wait_for_workers=False)
    group = connect(store, spec.rank, spec.size, device, spec.seconds, LOOPBACK)
    if spec.inbox:
        group = with_inbox(group)
    _joined.append(group)
    worker_loop(Receiver(buffer, bell).receive, build(group, spec.args))


def report(bell: socket.socket, error: BaseException) -> None:
    """Send an exception up: {"text", "traceback", "secondary"}.

    secondary: this rank only waited in vain for another one, which has the real reason.
    """
    lines = "".join(traceback.format_exception(error))
    told = {
        "text": f"{type(error).__name__}: {error}"[-REPORT_LIMIT // 4 :],
        "traceback": lines[-REPORT_LIMIT // 4 :],
        "secondary": isinstance(error, CollectiveError),
    }
    data = json.dumps(told).encode()
    with contextlib.suppress(OSError):  # rank 0 is gone
        bell.sendall(FAILED + REPORT_LENGTH.pack(len(data)) + data)


def _follow_parent(follow_thread: bool) -> None:
    """End when the parent ends, however that happens and whatever this process is doing."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="nanoengine-parent-watch", daemon=True).start()
    # a hang in C that keeps the interpreter's lock stops that thread, but not the kernel's signal,
    # which however also comes when only the thread that started us ends
    if follow_thread and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent.pid:
            os._exit(1)
