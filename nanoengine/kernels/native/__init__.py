"""Fused kernels for CPUs: one C file, compiled on first use by the system's C compiler."""
