"""What a GPU can do: kernels ask here instead of failing on an older card."""

from dataclasses import dataclass

import torch

_AMPERE, _HOPPER = (8, 0), (9, 0)


@dataclass(frozen=True, slots=True)
class Capability:
    """The guards that kernels obey; a test forces one off with `dataclasses.replace`.

    bf16: bfloat16 in the matrix units (Ampere, 2020, and later; a T4 has float16 only).
    pdl: programmatic dependent launch, a kernel that starts before the one before it ends (Hopper).
    tma: the bulk copy engine that tensor descriptors use (Hopper).
    shared_memory: bytes that one program may use: 65,536 on a T4, 101,376 on an RTX 30xx,
    232,448 on an H200. sms: multiprocessors, 132 on an H200.
    """

    bf16: bool = True
    pdl: bool = True
    tma: bool = True
    shared_memory: int = 232_448
    sms: int = 132

    def describe(self) -> str:
        """One line for `nanoengine doctor`."""
        flags = ", ".join(f"{name} {'yes' if getattr(self, name) else 'no'}" for name in _FLAGS)
        return f"{self.sms} SMs, {self.shared_memory // 1024} KiB shared memory, {flags}"


_FLAGS = ("bf16", "pdl", "tma")


def detect(device: torch.device) -> Capability:
    """What `device` can do; on a CPU (Triton's interpreter) everything but programmatic launch."""
    if device.type != "cuda":
        return Capability(pdl=False)
    properties = torch.cuda.get_device_properties(device)
    arch = (properties.major, properties.minor)
    return Capability(
        bf16=arch >= _AMPERE,
        pdl=arch >= _HOPPER,
        tma=arch >= _HOPPER,
        shared_memory=properties.shared_memory_per_block_optin,  # type: ignore[attr-defined]
        sms=properties.multi_processor_count,
    )
