"""Tensor parallelism: which rank this process is, and how ranks add up their parts."""
