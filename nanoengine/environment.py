"""What this machine and this installation are: for `doctor` and for a benchmark's record."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from nanoengine import __version__

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "triton",
    "flash-attn",
    "vllm",
    "nano-vllm",
)
_GIT_SECONDS = 10


def versions() -> dict[str, str | None]:
    """Versions of python, nanoengine and the packages that matter; None: not installed.

    Reads metadata only: nothing is imported.
    """
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "nanoengine": __version__,
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    # the version that runs, with its build ("2.11.0+cu130"), beats the one in the metadata
    found["torch"] = torch.__version__
    return found


def device_name(device: torch.device) -> str:
    """What a person calls the device: a GPU's name, or the processor's with its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{cpu_name()}, {torch.get_num_threads()} threads"


def cpu_name() -> str:
    """The processor's name where the system tells it, else its architecture."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> tuple[int | None, int | None]:
    """(total, available) bytes of main memory; None where the system does not tell."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return None, None
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    free = page * os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in names else None
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():  # counts caches that the system would give up
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) << 10
    return total, free


def gpu_facts(device: torch.device) -> dict[str, Any]:
    """Name, memory and compute capability of a CUDA device."""
    free, total = torch.cuda.mem_get_info(device)
    major, minor = torch.cuda.get_device_capability(device)
    return {
        "name": torch.cuda.get_device_name(device),
        "total_bytes": total,
        "free_bytes": free,
        "compute_capability": f"{major}.{minor}",
        "bfloat16": torch.cuda.is_bf16_supported(including_emulation=False),
    }


def git_state() -> dict[str, str | bool | None]:
    """Commit of the checkout that this package runs from, and whether tracked files differ.

    Both None when the package is not in a git checkout, or git is not there.
    """
    folder = Path(__file__).resolve().parent
    tracked = _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
    commit = _git(folder, "rev-parse", "HEAD") if tracked else None
    if not commit:
        return {"commit": None, "dirty": None}
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit.strip(), "dirty": bool(changes)}


def _git(folder: Path, *args: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *args],
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout
