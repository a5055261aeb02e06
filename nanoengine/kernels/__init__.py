"""Triton kernels for a GPU; each one's torch reference is the layer or backend that it replaces.

Nothing here is imported on a machine without Triton: `gpu.GpuKernels` is the only door, and
`attention.base.choose_backend` opens it.
"""
