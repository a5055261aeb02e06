"""How layers come to use a device's kernels: `None` means plain torch."""

from typing import TYPE_CHECKING, TypeAlias, Union

from torch import nn

if TYPE_CHECKING:  # importing the GPU's kernels needs Triton
    from nanoengine.kernels.gpu import GpuKernels
    from nanoengine.kernels.native.cpu import CpuKernels

# Two classes with the same methods: the layers do not know on which device they run.
Kernels: TypeAlias = Union["GpuKernels", "CpuKernels"]


class KernelLayer(nn.Module):
    """A layer that has a kernel; its torch code is the kernel's reference, and runs without one."""

    kernels: Kernels | None = None


def bind_kernels(model: nn.Module, kernels: Kernels | None) -> None:
    """Give every layer of the model that has a kernel the kernels of this device."""
    for module in model.modules():
        if isinstance(module, KernelLayer):
            module.kernels = kernels
