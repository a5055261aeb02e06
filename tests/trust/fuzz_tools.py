"""Ways to damage a file, and what may come of it: it works as before, or one clear error."""

import contextlib
import copy
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from nanoengine.errors import NanoengineError

# The same cases in every run: a library that aborts the process would end the whole test run.
# NANOENGINE_FUZZ=2000 tries as many new ones a property.
_MORE = int(os.environ.get("NANOENGINE_FUZZ", "0"))
FUZZ = settings(
    deadline=None,
    database=None,
    derandomize=not _MORE,
    suppress_health_check=list(HealthCheck),
)
SECONDS = 20  # for one attempt on a busy machine; it takes milliseconds
LONGEST = 1000  # characters of a message

# JSON values of every kind, wrong for most places
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, 10**30, 10**400, 0.5, -0.5, 1e-300,
    float("inf"), float("nan"), "", "x", "4", "\0", "é" * 40, [], [1], ["x"], [[]], [None], {},
    {"a": 1}, {"0": 5},
]  # fmt: skip


def examples(count: int) -> settings:
    """Settings for so many examples a property, or for what NANOENGINE_FUZZ says."""
    return settings(FUZZ, max_examples=_MORE or count)


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """Raise TimeoutError inside what takes too long (where the system has alarms)."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def attempt(action: Callable[[], Any]) -> tuple[Any, str | None]:
    """(result, None), or (None, message) of the one kind of error that users may see."""
    try:
        with no_hang():
            return action(), None
    except NanoengineError as error:
        message = str(error)
        assert message, "an error without words"
        assert len(message) < LONGEST, message
        return None, message


@st.composite
def damaged_bytes(draw: st.DrawFn, data: bytes, region: int | None = None) -> bytes:
    """The data cut short, with other bytes, without some, with more, or nothing like it.

    region: change only the first so many bytes (a safetensors header).
    """
    end = len(data) if region is None else region
    at = draw(st.integers(0, end - 1))
    match draw(st.sampled_from(["cut", "flip", "delete", "insert", "other"])):
        case "cut":
            return data[: draw(st.integers(0, len(data) - 1))]
        case "flip":
            changed = bytearray(data)
            for place in [at, *draw(st.lists(st.integers(0, end - 1), max_size=3))]:
                changed[place] = draw(st.integers(0, 255))
            return bytes(changed)
        case "delete":
            return data[:at] + data[at + draw(st.integers(1, 20)) :]
        case "insert":
            more = draw(st.text(st.sampled_from('0123456789{}[]",:truefalsn\\ -.eE'), min_size=1))
            return data[:at] + more[:6].encode() + data[at:]
    return draw(
        st.binary(max_size=200) | st.sampled_from([b"", b"[" * 100_000, b'{"a":' * 100_000])
    )


def places(value: Any, path: tuple[Any, ...] = (), width: int = 12) -> Iterator[tuple[Any, ...]]:
    """Paths to the values in a JSON value; of long lists and objects only the first few."""
    if path:
        yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in list(items)[:width]:
            yield from places(inner, (*path, key), width)


@st.composite
def damaged_json(draw: st.DrawFn, value: Any, more: list[Any], names: list[str]) -> str:
    """JSON text of the value with one to three values gone, odd, or new.

    more: further odd values for this file. names: fields that may be added at the top.
    """
    changed = copy.deepcopy(value)
    paths = list(places(value))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths) | st.tuples(st.sampled_from(names or [paths[0][0]])))
        at = changed
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for key in path[:-1]:
                at = at[key]
            if draw(st.integers(0, 5)) == 0:
                del at[path[-1]]
            else:
                at[path[-1]] = copy.deepcopy(draw(st.sampled_from([*more, *ODD])))
    return json.dumps(changed)


@contextlib.contextmanager
def replaced_file(path: Path, data: bytes) -> Iterator[None]:
    """The file with other content, for a while."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)
