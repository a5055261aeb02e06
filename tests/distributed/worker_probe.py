"""Worker-setup functions that look into a worker's engine, or make it differ from rank 0's."""

import json
from typing import Any

from nanoengine import weights
from nanoengine.distributed.group import TPGroup
from nanoengine.engine.model_runner import ModelRunner


class CountingSlice:
    """A tensor on disk that counts the bytes that are read of it."""

    def __init__(self, source: Any, counter: dict[str, int]) -> None:
        self._source, self._counter = source, counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __getitem__(self, index: Any) -> Any:
        part = self._source[index]
        self._counter["read"] += part.numel() * part.element_size()
        return part


class CountingFile:
    """A safetensors file whose slices count."""

    def __init__(self, file: Any, counter: dict[str, int]) -> None:
        self._file, self._counter = file, counter

    def __enter__(self) -> "CountingFile":
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._file.__exit__(*error)

    def keys(self) -> Any:
        return self._file.keys()

    def get_slice(self, name: str) -> CountingSlice:
        return CountingSlice(self._file.get_slice(name), self._counter)


def count_reads() -> dict[str, int]:
    """From now on {"read": bytes that were read of weights}."""
    counter = {"read": 0}
    opened = weights.safe_open
    weights.safe_open = lambda *args, **kw: CountingFile(opened(*args, **kw), counter)
    return counter


def dump_model(path: str) -> None:
    """Write the rank's parameter shapes and what it read to `path`.RANK."""
    counter = count_reads()
    make = ModelRunner.__init__

    def init(self: ModelRunner, *args: Any, **kw: Any) -> None:
        make(self, *args, **kw)
        shapes = {name: list(p.shape) for name, p in self.model.named_parameters()}
        facts = {"shapes": shapes, "read": counter["read"], "cache": list(self.kv_cache.shape)}
        with open(f"{path}.{self.group.rank}", "w", encoding="utf-8") as file:
            json.dump(facts, file)

    ModelRunner.__init__ = init  # type: ignore[method-assign]


def fewer_blocks_on_rank_3(blocks: int) -> None:
    """Rank 3 has room for so many KV blocks only."""
    agree = TPGroup.agree

    def less(self: TPGroup, what: str, value: int = 0) -> int:
        return agree(self, what, blocks if self.rank == 3 and what == "KV blocks" else value)

    TPGroup.agree = less  # type: ignore[method-assign]


def raise_in_run(message: str) -> None:
    """Decode steps fail."""
    run = ModelRunner.run

    def fail(self: ModelRunner, batch: Any, record: Any = None) -> Any:
        if not batch.is_prefill:
            raise ValueError(message)
        return run(self, batch, record)

    ModelRunner.run = fail  # type: ignore[method-assign]
