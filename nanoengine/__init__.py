"""nanoengine: a readable LLM inference engine, and the course that builds it."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nanoengine.llm import LLM
    from nanoengine.sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams"]

try:
    __version__ = version("nanoengine")
except PackageNotFoundError:  # running from a checkout that is not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import the engine on first use: `import nanoengine` alone stays quick."""
    if name == "LLM":
        from nanoengine.llm import LLM

        return LLM
    if name == "SamplingParams":
        from nanoengine.sampling_params import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'nanoengine' has no attribute {name!r}")
