"""What an answer may use, and how the system holds it to that (where the system can)."""

import sys

CPU_SECONDS = 4  # an ordinary grade takes well under one
WALL_SECONDS = 10  # for answers that wait rather than compute, and where CPU time has no limit
START_SECONDS = 30  # on top, where an engine's workers are fresh interpreters that import torch
MEMORY_BYTES = 1 << 30
FILE_BYTES = 16 << 20  # a single file, the captured output included
OUTPUT_CHARS = 2000  # of the printed text that a grade shows


def limit_this_process() -> None:
    """Cap CPU time, memory and file size of this process, beyond what it has used already.

    Linux obeys all of them; macOS has no memory cap; Windows has none of them, there only the
    grader's clock ends an answer.
    """
    try:
        import resource
    except ImportError:
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(usage.ru_utime + usage.ru_stime) + 1 + CPU_SECONDS
    # soft: a signal that leaves a traceback; hard: the end, whatever the answer did to signals
    _lower(resource.RLIMIT_CPU, cpu, cpu + 2)
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES, FILE_BYTES)
    _lower(resource.RLIMIT_CORE, 0, 0)
    if sys.platform == "linux":
        used = _virtual_bytes() + MEMORY_BYTES
        _lower(resource.RLIMIT_AS, used, used)


def _lower(kind: int, soft: int, hard: int) -> None:
    """Set a limit, but never above the one that is in force."""
    import resource

    _, top = resource.getrlimit(kind)
    if top != resource.RLIM_INFINITY:
        soft, hard = min(soft, top), min(hard, top)
    resource.setrlimit(kind, (soft, hard))


def _virtual_bytes() -> int:
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
