"""From `kernels.c` to a loaded library: compiled once, kept in the user's cache, checked.

A library is code, so it is loaded only from a folder that is the user's alone, and only when its
content is what was compiled: its name holds the hashes of what it was made from and of itself. A
damaged one is simply built again. Nothing here raises: without a compiler the engine runs in plain
torch, and the reason is told.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import torch  # noqa: F401  (the library calls torch's OpenMP)

from nanoengine.cache import cache_dir
from nanoengine.errors import ConfigError

SOURCE = Path(__file__).with_name("kernels.c")
# -march=native: for this very CPU. The last two allow vector code where errno and the flags of
# floating-point exceptions would forbid it; nobody reads those.
FLAGS = "-O2 -ftree-vectorize -march=native -fopenmp -fPIC -fno-math-errno -fno-trapping-math"
_SECONDS = 60  # for a compiler that hangs

# Arguments of each function: p pointer, i 64-bit integer, f float, t number of threads.
_TYPES = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "f": ctypes.c_float, "t": ctypes.c_int}
_SIGNATURES = {
    "lanes": "",
    "linear": "pppiiit",
    "add_rms_norm": "pppppiift",
    "silu_and_mul": "ppiit",
    "linear_silu": "ppppiiit",
    "rotate_and_store": "ppppppppiiiiift",
    "attend_prefill": "ppppppppft",
    "attend_decode": "pppppppft",
    "sample": "pipppp" + "ppiiift",
    "resolve_placeholders": "pppii",
    "decode_layers": "pipppppppp" + "piifft",
}


class Sizes(ctypes.Structure):
    """The sizes of an attention call, as `kernels.c` declares them."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *("sequences", "tokens", "most_queries", "most_keys", "width", "num_blocks"),
            *("block_size", "heads", "kv_heads", "dim", "q_stride", "kv_stride"),
        )
    ]


class Layer(ctypes.Structure):
    """Where one layer's weights and caches lie, as `kernels.c` declares it."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            *("input_norm", "qkv", "q_gain", "k_gain", "o", "post_norm", "gate_up", "down"),
            *("k_cache", "v_cache"),
        )
    ]


class Built(NamedTuple):
    """The loaded library, or None, and one line on how it was made, or why it was not."""

    library: ctypes.CDLL | None
    reason: str


@functools.cache
def load_library() -> Built:
    """The compiled kernels of this CPU; compiles at most once a process, and raises nothing."""
    if sys.platform != "linux":  # where torch's threads cannot be shared with a C function
        return Built(None, f"the C kernels are made for Linux, not for {sys.platform}")
    try:
        compiler = _compiler()
        if not compiler:
            return Built(None, "no C compiler was found: install gcc, or set CC to one")
        library = _from_cache_or_new(compiler)
    # ValueError: CC's quotes; AttributeError: a function that the compiler left out
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError, ConfigError) as error:
        return Built(None, f"the C kernels could not be built: {_why(error)}")
    lanes = library.lanes()
    return Built(library, f"C kernels, compiled by {compiler[0]} for {lanes} floats a register")


def _compiler() -> list[str]:
    """The command that CC names, or else gcc, whose OpenMP is torch's, or cc; empty: none."""
    commands = [shlex.split(os.environ["CC"])] if "CC" in os.environ else [["gcc"], ["cc"]]
    for command in commands:
        path = shutil.which(command[0]) if command else None
        if path is not None:
            return [path, *command[1:]]
    return []


def _from_cache_or_new(compiler: list[str]) -> ctypes.CDLL:
    with _own_folder() as folder:
        key = _key(compiler)
        for path in sorted(folder.glob(f"kernels-{key}-*.so")):
            if path.stem.endswith(_digest(path.read_bytes())):
                with suppress(OSError):  # made for another system's libraries: made again below
                    return _open(path)
        with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as work:
            made = _compile(compiler, Path(work))
            library = _open(made)  # only what can be loaded is kept
            path = folder / f"kernels-{key}-{_digest(made.read_bytes())}.so"
            os.replace(made, path)  # at once: another process never sees half a file
        return library


def _compile(compiler: list[str], work: Path) -> Path:
    """Compile, then link without `-fopenmp`.

    So the library names no OpenMP runtime of its own: its calls are bound to the one that torch
    has loaded. Two of them would each keep threads that wait busily for work.
    """
    objects, made = work / "kernels.o", work / "kernels.so"
    steps = (
        [*shlex.split(FLAGS), "-c", str(SOURCE), "-o", str(objects)],
        ["-shared", str(objects), "-lm", "-o", str(made)],
    )
    for step in steps:
        subprocess.run(
            [*compiler, *step], check=True, capture_output=True, timeout=_SECONDS,
            stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace",
            env={**os.environ, "LC_ALL": "C"},  # `_why` looks for the word "error"
        )  # fmt: skip
    return made


def _open(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))  # finds torch's OpenMP: torch was imported, and is global
    for name, codes in _SIGNATURES.items():
        getattr(library, name).argtypes = [_TYPES[code] for code in codes]
    return library


@contextmanager
def _own_folder() -> Iterator[Path]:
    """A folder that only this user can write: in the cache, or else a temporary one."""
    folder = None
    try:
        folder = cache_dir() / "kernels"
        folder.mkdir(mode=0o700, exist_ok=True)
        own = _is_own(folder) and _is_own(folder.parent)  # or the folder could be exchanged
        if not own or not os.access(folder, os.W_OK):
            folder = None
    except (OSError, ConfigError):
        folder = None
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="nanoengine-kernels-") as temporary:
        yield Path(temporary)  # a loaded library stays loaded when its file is gone


def _is_own(folder: Path) -> bool:
    """Whether no other user (root apart) can put a file there."""
    facts = folder.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return (
        stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & others
    )


def _key(compiler: list[str]) -> str:
    """Of everything that the library's content depends on."""
    path = Path(compiler[0]).resolve()
    facts = path.stat()
    made_by = (*compiler, str(path), str(facts.st_size), str(facts.st_mtime_ns), FLAGS, _cpu())
    return _digest(SOURCE.read_bytes() + "\0".join(made_by).encode())


def _cpu() -> str:
    """What -march=native looks at: the architecture, and the instructions that there are."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
        lines = [line for line in info if line.startswith(("model name", "flags", "Features"))]
    return platform.machine() + "".join(sorted(set(lines)))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _why(error: Exception) -> str:
    """One line: the compiler's first error, or what kept it from running."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"{error.cmd[0]} did not end within {error.timeout:g} seconds"
    if not isinstance(error, subprocess.CalledProcessError):
        remedy = "; set CC=gcc" if "__kmpc" in str(error) else ""  # clang's OpenMP is another one
        return str(error)[:200] + remedy
    lines = [line for line in str(error.stderr).splitlines() if "error" in line]
    return (lines or [f"{error.cmd[0]} ended with status {error.returncode}"])[0][:200]
