"""How much memory a piece of work takes for a while: the allocations of a run, over time."""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from nanoengine.engine.model_runner import ModelRunner


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within its `with` block: `curve` grows by an entry a new tensor memory and a release.

    Entries are bytes beyond what was alive before. Views add nothing; what an operation takes
    inside itself is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.curve: list[int] = [0]
        self._alive: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and look for memory that is not its arguments'."""
        own = {storage._cdata for storage in _storages((args, kwargs))}
        out = func(*args, **(kwargs or {}))
        for storage in _storages(out):
            if storage._cdata not in own | self._alive:
                self._alive.add(storage._cdata)
                self._change(storage.nbytes())
                end = weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
                end.atexit = False
        return out

    def _change(self, size: int) -> None:
        self.curve.append(self.curve[-1] + size)

    def _freed(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self._change(-size)


def _storages(values: Any) -> list[torch.UntypedStorage]:
    tensors = (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
    return [tensor.untyped_storage() for tensor in tensors]


def allocated_during(work: Callable[[], Any]) -> list[int]:
    """The `Allocations.curve` of a call: `max(...)` is its peak, the last entry what it left.

    Three tensors of 4 bytes, of which never more than two are alive:

    >>> def work():
    ...     a = torch.zeros(1)
    ...     b = a + 1
    ...     del a
    ...     c = b + 1
    >>> allocated_during(work)
    [0, 4, 8, 4, 8, 4, 0]
    """
    with Allocations() as allocations:
        work()
    curve: list[int] = allocations.curve
    return curve


def warm_up_curve(runner: "ModelRunner") -> list[int]:
    """`allocated_during` the runner's warm-up, as it is before the KV cache is carved.

    The layers' caches are unbound for that time: a warm-up run writes nowhere.
    """
    from nanoengine.engine import kv_cache
    from nanoengine.layers.attention import Attention

    for module in runner.model.modules():
        if isinstance(module, Attention):
            module.k_cache = module.v_cache = torch.empty(0)
    try:
        return allocated_during(runner.warm_up)
    finally:
        kv_cache.bind_kv_cache(runner.model, runner.kv_cache)
