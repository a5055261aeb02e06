"""Attention by our own Triton kernels (`nanoengine.kernels`): the default on a GPU.

The functions are the interface of `attention.base`; importing this module needs Triton.
"""

from nanoengine.kernels.gpu import GpuKernels

# A backend is anything with `store_kvcache` and `attend`; the kernels of a device are one.
TritonBackend = GpuKernels
