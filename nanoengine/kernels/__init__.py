"""Kernels; each one's torch reference is the layer or backend that it replaces.

Triton's for a GPU lie here, the C ones for a CPU in `native`. Nothing of them is imported where
they cannot run: `gpu.GpuKernels` and `native.cpu.CpuKernels` are the only doors, and
`attention.base.choose_backend` opens them.
"""
