"""What an attention backend must offer, and how one is chosen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import torch

from nanoengine.context import Context
from nanoengine.errors import ConfigError
from nanoengine.kernels.binding import Kernels

if TYPE_CHECKING:  # importing the GPU's kernels needs Triton
    from nanoengine.kernels.gpu import GpuKernels


class AttentionBackend(Protocol):
    """A backend is a module or an object with these two functions (a lesson can swap either)."""

    def store_kvcache(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Write row i of k and v, [n, kv_heads, head_dim], to slot slot_mapping[i]; -1: nowhere."""
        ...

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        context: Context,
        scale: float,
    ) -> torch.Tensor:
        """Causal attention of q, [n, heads, head_dim], as the context says; same shape back."""
        ...


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """A backend, its name, one line on why it was taken, and the kernels for the other layers.

    kernels: None with the reference backend: every layer runs in plain torch.
    """

    name: str
    backend: AttentionBackend
    reason: str
    kernels: Kernels | None = None


# Why a CPU's "auto" means plain torch just now, if it does; see `plain_torch`.
_plain_torch: list[str] = []


@contextmanager
def plain_torch(reason: str) -> Iterator[None]:
    """Inside the `with` block "auto" on a CPU means the reference backend, for this reason.

    For lessons: a student's function in a torch function's place must be what the engine runs.
    """
    _plain_torch.append(reason)
    try:
        yield
    finally:
        _plain_torch.remove(reason)


def choose_backend(
    name: str,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    graphs: bool = False,
) -> BackendChoice:
    """The backend that `attention_backend=name` means on this device, for a model of this dtype.

    "auto" on a GPU is `triton`, where Triton can be imported, on a CPU in float32 it is `native`,
    where a C compiler is found, and otherwise `reference`; `flash_attn` is taken only when asked
    for. graphs: decode replays graphs, whose double on a CPU is strict and made for lessons: "auto"
    is `reference` there. Raises ConfigError when the named backend cannot run there.
    """
    if name == "auto" and device.type == "cpu" and (graphs or _plain_torch):
        why = _plain_torch[-1] if _plain_torch else "the double of graphs is made for lessons"
        return _reference(f"plain torch on a CPU: {why}")
    if name == "reference":
        return _reference("asked for")
    if device.type == "cpu":
        return _on_cpu(name, device, dtype)
    if name == "native":
        raise _unavailable(name, device, "it needs a CPU")
    kernels, problem = _load_kernels(device)
    if kernels is None:
        if name == "auto":
            return _reference(f"{problem}: plain torch instead, which is much slower")
        raise _unavailable(name, device, problem)
    if name == "flash_attn":
        return _flash_attn(device, kernels)
    why = "asked for" if name == "triton" else "our kernels run on this GPU"
    return BackendChoice("triton", kernels, f"{why} ({kernels.device.describe()})", kernels)


def _on_cpu(name: str, device: torch.device, dtype: torch.dtype) -> BackendChoice:
    if name not in ("auto", "native"):
        raise _unavailable(name, device, "it needs a GPU")
    problem = ""
    if dtype != torch.float32:
        problem = f"the C kernels compute in float32, not in {str(dtype).removeprefix('torch.')}"
    else:
        from nanoengine.attention import reference
        from nanoengine.kernels.native.build import load_library
        from nanoengine.kernels.native.cpu import CpuKernels

        library, reason = load_library()
        if library is not None:
            kernels = CpuKernels(library, cast(AttentionBackend, reference))
            why = "asked for" if name == "native" else "our kernels run on this CPU"
            return BackendChoice("native", kernels, f"{why} ({reason})", kernels)
        problem = reason
    if name == "native":
        raise _unavailable(name, device, problem)
    return _reference(f"{problem}; plain torch runs instead, at about half the speed")


def _reference(reason: str) -> BackendChoice:
    from nanoengine.attention import reference

    return BackendChoice("reference", cast(AttentionBackend, reference), reason)


def _load_kernels(device: torch.device) -> "tuple[GpuKernels | None, str]":
    """The kernels with this device's guards, or None and the reason."""
    from nanoengine.kernels import capability

    try:
        from nanoengine.attention.triton import TritonBackend
    except ImportError as error:
        return None, f"Triton cannot be imported ({error})"
    return TritonBackend(capability.detect(device)), ""


def _flash_attn(device: torch.device, kernels: "GpuKernels") -> BackendChoice:
    if not kernels.device.bf16:
        raise _unavailable("flash_attn", device, "it needs a GPU of 2020 (Ampere) or later")
    try:
        from nanoengine.attention.flash_attn import FlashAttnBackend
    except ImportError as error:
        problem = f"it cannot be imported ({error}); pip install flash-attn"
        raise _unavailable("flash_attn", device, problem) from error
    return BackendChoice("flash_attn", FlashAttnBackend(), "asked for", kernels)


def _unavailable(name: str, device: torch.device, problem: str) -> ConfigError:
    return ConfigError(
        f"attention_backend={name!r} is not available on {device.type}: {problem}; "
        "use 'auto' or 'reference'"
    )
