"""Start the worker processes of an engine, and join them as rank 0."""

import mmap
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess
from typing import IO, Any

import torch

from nanoengine.distributed import rpc, worker
from nanoengine.distributed.group import START_SECONDS, c10d, connect
from nanoengine.distributed.inbox import with_inbox
from nanoengine.distributed.peer import GUARD_EXIT, Peer, check
from nanoengine.distributed.workers import Workers
from nanoengine.errors import ConfigError

WORKER_NAME = "nanoengine-rank-"  # of worker processes
# A process that has imported torch, and has neither threads nor a GPU, may fork its workers: that
# takes milliseconds instead of seconds (the course's grader does).
START_METHOD = "spawn"


def launch(
    size: int,
    target: str,
    args: dict[str, Any],
    device: torch.device,
    seconds: float,
    inbox: bool = False,
) -> Workers:
    """Start ranks 1 to size - 1 on this host, and join them as rank 0.

    target: "package.module:function", called in each worker as function(group, args); gives
    {message kind: handler}. args: what JSON can say. seconds: how long ranks wait for each other
    inside a step before it is an error. inbox: let GPUs sum in one kernel, where they can.

    Raises WorkerError when a worker cannot start, ConfigError where the system has not the means.
    """
    _refuse(size, device)
    store = _open_store()
    with _segment() as segment:
        workers = Workers(memoryview(mmap.mmap(segment.fileno(), 0)), seconds)
        first = worker.WorkerSpec(
            rank=0,
            size=size,
            port=store.port,
            device=device.type,
            seconds=seconds,
            threads=max(1, torch.get_num_threads() // size),
            target=target,
            args=args,
            setup=worker.current_setups(),
            follow_thread=START_METHOD != "forkserver"  # there another process is the parent
            and threading.current_thread() is threading.main_thread(),
            inbox=inbox and device.type == "cuda",
        )
        with workers.supervise():
            peers = workers.peers
            for rank in range(1, size):
                peers.append(_start(replace(first, rank=rank), segment.fileno()))
            for peer in peers:
                peer.wait_idle(START_SECONDS)
                peer.idle = False
            check_peers = partial(check, peers)
            group = connect(store, 0, size, device, seconds, worker.LOOPBACK, check_peers)
            workers.met(group)
            if first.inbox:
                workers.met(with_inbox(group))
    workers.watcher.start()
    return workers


def _refuse(size: int, device: torch.device) -> None:
    """Raise for what cannot work on this system, or in this process."""
    if multiprocessing.current_process().name.startswith(WORKER_NAME):
        raise SystemExit(GUARD_EXIT)  # rank 0 explains
    if not hasattr(socket, "send_fds"):
        raise ConfigError(
            f"tensor_parallel_size={size} needs Linux or macOS, and this is {sys.platform}: use 1"
        )
    if device.type == "cuda" and size > torch.cuda.device_count():
        raise ConfigError(
            f"tensor_parallel_size={size}, but torch sees {torch.cuda.device_count()} GPUs: use at "
            "most as many, or several hosts under torchrun"
        )


def _open_store() -> Any:
    """Where the ranks find each other: any free port of this host alone, bound at once."""
    listener = socket.create_server((worker.LOOPBACK, 0))
    port, descriptor = listener.getsockname()[1], listener.detach()
    return c10d.TCPStore(
        worker.LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=descriptor,
    )


def _segment() -> IO[bytes]:
    """Memory to share, as a file that has no name: nothing can be left behind, ever."""
    shm = "/dev/shm"
    segment = tempfile.TemporaryFile(  # noqa: SIM115  (the caller closes it)
        dir=shm if os.access(shm, os.W_OK) else None
    )
    segment.write(bytes(rpc.BUFFER_BYTES))  # takes the memory now: too little is an error here
    segment.flush()
    return segment


def _start(spec: worker.WorkerSpec, descriptor: int) -> Peer:
    """One worker process, with a socket to it and the shared segment sent through that."""
    ours, theirs = socket.socketpair()
    context: Any = multiprocessing.get_context(START_METHOD)
    process: BaseProcess = context.Process(
        target=worker.worker_main,
        args=(theirs, spec.to_json(), ours if START_METHOD == "fork" else None),
        name=f"{WORKER_NAME}{spec.rank}",
        daemon=True,
    )
    # Ctrl-C reaches the whole terminal; what it means for the workers is rank 0's decision
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
    socket.send_fds(ours, [rpc.RING], [descriptor])
    return Peer(spec.rank, process, ours)
