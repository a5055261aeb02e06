"""What an attention backend must offer, and how one is chosen."""

from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, cast

import torch

from nanoengine.context import Context
from nanoengine.errors import ConfigError


class AttentionBackend(Protocol):
    """A backend is a module with these two functions (so that a lesson can swap either)."""

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
    """A backend, its name, and one line on why it was taken."""

    name: str
    module: ModuleType
    reason: str

    @property
    def backend(self) -> AttentionBackend:
        """The module, as the interface it implements."""
        return cast(AttentionBackend, self.module)


def choose_backend(name: str, device: torch.device) -> BackendChoice:
    """The backend that `attention_backend=name` means on this device.

    Raises ConfigError when the named backend cannot run there.
    """
    from nanoengine.attention import reference

    if name in ("auto", "reference"):
        reason = "asked for" if name == "reference" else f"the torch backend runs on {device.type}"
        return BackendChoice("reference", reference, reason)
    raise ConfigError(
        f"attention_backend={name!r} is not available on {device.type} in this version: "
        "use 'auto' or 'reference'"
    )
