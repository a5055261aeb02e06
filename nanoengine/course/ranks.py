"""Grading on several ranks: how workers start, what happened on them, in plain data."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nanoengine.course.source import FILENAME

_RAISED = re.compile(r"rank (\d+) raised (\w+): ?(.*)")
_PROCESS = re.compile(r" \(process \d+\)")  # a number that is another one every time
_LINE = re.compile(rf'File "{FILENAME}", line (\d+)')
_MESSAGE_CHARS = 200


def start_by_fork(allowed: bool) -> None:
    """Let engines of this process fork their workers: torch is imported, there are no threads."""
    if allowed:
        from nanoengine.distributed import launch

        launch.START_METHOD = "fork"


def buffer_bytes(values: int) -> int:
    """Size of a buffer with room for so many int32 values."""
    from nanoengine.distributed import rpc

    return rpc.HEADER.size + 4 * values


@contextlib.contextmanager
def shared_buffer(size: int) -> Iterator[None]:
    """Engines built inside share a buffer of `size` bytes with their workers; 0: as always."""
    from nanoengine.distributed import rpc

    before = rpc.BUFFER_BYTES
    rpc.BUFFER_BYTES = size or before
    try:
        yield
    finally:
        rpc.BUFFER_BYTES = before


@contextlib.contextmanager
def counted_calls(folder: Path) -> Iterator[Path]:
    """A file for `swapping.carried`; gone afterwards."""
    path = folder / f"calls-{os.getpid()}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def count_of(path: Path) -> int:
    """How often the function was called on other ranks."""
    return path.stat().st_size if path.exists() else 0


def failure_of(error: BaseException) -> dict[str, Any] | None:
    """An exception of another rank as `child` describes its own; None for any other exception.

    What rank 0 has is a WorkerError: its text holds the other rank's exception and traceback.
    """
    if "WorkerError" not in (kind.__name__ for kind in type(error).__mro__):
        return None
    text = _PROCESS.sub("", str(error))
    first = text.partition("\n")[0]
    lines = _LINE.findall(text)
    found = _RAISED.match(first)
    name, message = (found[2], found[3]) if found else ("WorkerError", first)
    return {
        "type": f"{name} on rank {found[1]}" if found else name,
        "kinds": [name],
        "message": message[:_MESSAGE_CHARS],
        "line": int(lines[-1]) if lines else 0,
        "not_attempted": name == "NotAttempted",
    }
