"""How layers come to use the GPU's kernels: `None` means plain torch."""

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:  # importing the kernels needs Triton
    from nanoengine.kernels.gpu import GpuKernels


class KernelLayer(nn.Module):
    """A layer that has a kernel; its torch code is the kernel's reference, and runs without one."""

    kernels: "GpuKernels | None" = None


def bind_kernels(model: nn.Module, kernels: "GpuKernels | None") -> None:
    """Give every layer of the model that has a kernel the kernels of this device."""
    for module in model.modules():
        if isinstance(module, KernelLayer):
            module.kernels = kernels
