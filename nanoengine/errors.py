"""Every error raised on purpose: its message names the value, the limit and a remedy."""


class NanoengineError(Exception):
    """Base of all errors that nanoengine raises on purpose."""


class ConfigError(NanoengineError, ValueError):
    """An engine option has a value that cannot work."""


class RequestError(NanoengineError, ValueError):
    """A prompt or a sampling parameter is refused; nothing was queued."""


class ModelError(NanoengineError, ValueError):
    """A model's configuration asks for something this engine does not compute."""


class WeightsError(NanoengineError, ValueError):
    """Weight files are missing, damaged, or do not fit the model."""


class ModelNotFound(NanoengineError, FileNotFoundError):
    """The model's name leads to no folder with a model in it."""


class FetchError(NanoengineError, RuntimeError):
    """A download failed, or what came is not what was pinned."""


class NotEnoughMemory(NanoengineError, MemoryError):
    """Not even one KV block fits beside the weights."""


class EngineError(NanoengineError, RuntimeError):
    """The engine is used in a way it cannot serve, for example after `close()`."""


class GraphError(NanoengineError, RuntimeError):
    """A captured graph is replayed in a way a real CUDA graph could not be."""


class WorkerError(NanoengineError, RuntimeError):
    """A worker process of a tensor-parallel engine died, raised, or does not answer.

    rank: which one. exitcode: its exit code, negative for a signal; None while unknown.
    """

    def __init__(self, message: str, rank: int, exitcode: int | None = None) -> None:
        super().__init__(message)
        self.rank, self.exitcode = rank, exitcode


class CollectiveError(NanoengineError, RuntimeError):
    """A rank waited for another one in vain: that one failed first, and why it says itself."""
