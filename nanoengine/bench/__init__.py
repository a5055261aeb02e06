"""Measuring honestly: the article's workload, rates, the machine's floor, peers beside it."""

from nanoengine.errors import NanoengineError


class BenchError(NanoengineError, RuntimeError):
    """A benchmark cannot be run, or what it produced is not what was asked for."""
