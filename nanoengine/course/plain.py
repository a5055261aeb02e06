"""An engine on a CPU in plain torch for a while: what a lesson replaces or watches is what runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_cpu_kernels(runner: Any) -> Iterator[None]:
    """Inside the `with` block a runner's layers, attention and sampling are the torch functions.

    Nothing happens to a runner on a GPU, or one that has no kernels.
    """
    from nanoengine.attention import reference
    from nanoengine.kernels.binding import bind_kernels
    from nanoengine.layers.attention import Attention

    kernels = getattr(runner, "kernels", None)  # one whose construction failed has none yet
    if kernels is None or runner.device.type != "cpu":
        yield
        return

    def bind(kernels: Any, backend: Any) -> None:
        runner.kernels = kernels
        bind_kernels(runner.model, kernels)
        for module in runner.model.modules():
            if isinstance(module, Attention):
                module.backend = backend

    bind(None, reference)
    try:
        yield
    finally:
        bind(kernels, kernels)
