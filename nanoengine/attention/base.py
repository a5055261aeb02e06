"""What an attention backend must offer, and how one is chosen."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import torch

from nanoengine.context import Context
from nanoengine.errors import ConfigError

if TYPE_CHECKING:  # importing the kernels needs Triton
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

    kernels: None on a CPU and with the reference backend: every layer runs in plain torch.
    """

    name: str
    backend: AttentionBackend
    reason: str
    kernels: "GpuKernels | None" = None


def choose_backend(name: str, device: torch.device) -> BackendChoice:
    """The backend that `attention_backend=name` means on this device.

    "auto" on a GPU is `triton`, where Triton can be imported, and `reference` otherwise;
    `flash_attn` is taken only when asked for. Raises ConfigError when the named backend cannot
    run there.
    """
    if name == "reference" or device.type == "cpu":
        if name not in ("auto", "reference"):
            raise _unavailable(name, device, "it needs a GPU")
        reason = "asked for" if name == "reference" else "the torch backend runs on a CPU"
        return _reference(reason)
    kernels, problem = _load_kernels(device)
    if kernels is None:
        if name == "auto":
            return _reference(f"{problem}: plain torch instead, which is much slower")
        raise _unavailable(name, device, problem)
    if name == "flash_attn":
        return _flash_attn(device, kernels)
    why = "asked for" if name == "triton" else "our kernels run on this GPU"
    return BackendChoice("triton", kernels, f"{why} ({kernels.device.describe()})", kernels)


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
