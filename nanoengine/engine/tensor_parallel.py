"""One engine on several ranks: rank 0 schedules and samples, the others run the same batches.

What a worker is told of a step is a few integers a sequence: which row it has, which tokens are
computed, the ids of blocks that it does not know yet, and the token ids to feed. A decoding
sequence takes 6 of them (24 bytes), and one more when it gets a block: 256 sequences 6 KiB.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from nanoengine.config import EngineConfig
from nanoengine.distributed import torchrun, worker
from nanoengine.distributed.group import TPGroup
from nanoengine.distributed.launch import Workers, launch
from nanoengine.distributed.rpc import RUN
from nanoengine.distributed.torchrun import TorchrunWorkers
from nanoengine.engine.model_runner import ModelRunner
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sampling import SampledTokens
from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence
from nanoengine.errors import EngineError
from nanoengine.layers import linear
from nanoengine.models.config import ModelConfig, read_model_config

_TARGET = f"{__name__}:serve"


class BatchWriter:
    """Rank 0's end: batches as integers; remembers which blocks of each row are known."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[int], int]] = {}  # row -> its table, blocks told of it

    def encode(self, batch: Batch) -> list[int]:
        """[is_prefill, then for each sequence: row, start, end, known, new, block ids, token ids].

        The first `known` blocks of a row stand as they were told before, `new` more follow them;
        token ids are those of positions [start, end), a placeholder where the token is still on
        the device.
        """
        values = [int(batch.is_prefill)]
        for seq, start, end, _ in batch.items:
            table, known = self._known.get(seq.row, (None, 0))
            if table is not seq.block_table:  # another sequence has the row now
                known = 0
            blocks = seq.block_table[known:]
            values += (seq.row, start, end, known, len(blocks))
            values += blocks
            values += seq[start:end]
            self._known[seq.row] = seq.block_table, known + len(blocks)
        return values


class RemoteSequence:
    """What a worker knows of a sequence: enough for `inputs.SequenceView`."""

    __slots__ = ("block_table", "num_cached_tokens", "num_scheduled_tokens", "row", "tokens")

    def __init__(self, row: int, start: int, tokens: list[int], block_table: list[int]) -> None:
        self.row, self.tokens, self.block_table = row, tokens, block_table
        self.num_cached_tokens, self.num_scheduled_tokens = start, len(tokens)

    def __len__(self) -> int:
        """Tokens up to the end of this step."""
        return self.num_cached_tokens + self.num_scheduled_tokens

    def __getitem__(self, index: slice) -> list[int]:
        """Token ids by position, of this step's alone."""
        return self.tokens[index.start - self.num_cached_tokens :][: index.stop - index.start]

    @property
    def last_token(self) -> int:
        """The token that a decode step feeds."""
        return self.tokens[-1]


class BatchReader:
    """A worker's end: integers as batches; keeps every row's block table."""

    def __init__(self) -> None:
        self._tables: dict[int, list[int]] = {}

    def decode(self, values: "array[int]") -> Batch:
        """The batch that `BatchWriter.encode` was given, its sequences as RemoteSequences.

        Raises EngineError for what no BatchWriter wrote.
        """
        if not values:
            raise EngineError("a step's message holds nothing, not even its kind of batch")
        return Batch(list(self._items(values.tolist())), is_prefill=bool(values[0]))

    def _items(self, values: list[int]) -> Iterator[ScheduledItem]:
        at, stop = 1, len(values)
        while at < stop:
            if stop - at < 5:
                raise _no_sequence(values, at)
            row, start, end, known, new = values[at : at + 5]
            after_table = at + 5 + new
            after = after_table + end - start
            # a wrong count could go on for ever; block and token ids are what rank 0 checked
            if row < 0 or known < 0 or new < 0 or not 0 <= start < end or after > stop:
                raise _no_sequence(values, at)
            table = self._tables.get(row, [])
            if known > len(table):
                raise EngineError(f"row {row} has {len(table)} known blocks, not {known}")
            if new:
                table = self._tables[row] = table[:known] + values[at + 5 : after_table]
            seq = cast(Sequence, RemoteSequence(row, start, values[after_table:after], table))
            yield ScheduledItem(seq, start, end, emits=True)
            at = after


def _no_sequence(values: list[int], at: int) -> EngineError:
    return EngineError(
        f"a step's message holds no sequence at {at}, but {values[at : at + 5]}: rank 0 and "
        "this worker run different versions"
    )


def _refuse_sizes(config: ModelConfig, size: int) -> None:
    """Raise ConfigError for what cannot be divided, before anything is started."""
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    linear.QKVParallelLinear(1, heads, kv_heads, 1, bias=False, group=TPGroup(0, size))
    linear.shard_slice(config.intermediate_size, 0, size, "intermediate_size")


class CheckedTokens(SampledTokens):
    """Sampled tokens that count only if every worker lived to see them."""

    def __init__(self, tokens: SampledTokens, workers: Workers | TorchrunWorkers) -> None:
        self._tokens, self._workers = tokens, workers

    def tolist(self) -> list[int]:
        """The tokens. Raises WorkerError when a worker has failed meanwhile."""
        values = self._tokens.tolist()
        self._workers.check()
        return values


class ParallelRunner(ModelRunner):
    """Rank 0's runner: what it runs, the workers run, too."""

    def __init__(self, config: EngineConfig, model_config: ModelConfig, folder: Path) -> None:
        size, device = config.tensor_parallel_size, config.resolve_device()
        _refuse_sizes(model_config, size)
        args = {"folder": str(folder), "options": config.to_dict()}
        self.workers: Workers | TorchrunWorkers
        if torchrun.is_launched():
            self.workers = _join_torchrun(size, args, device, config.worker_timeout)
        else:
            self.workers = launch(size, _TARGET, args, device, config.worker_timeout)
        self._writer: BatchWriter | None = None  # the start-up's runs need no message
        with self.workers.supervise():
            super().__init__(config, model_config, folder, self.workers.group)
        self._writer = BatchWriter()

    def run(self, batch: Batch, record: StepRecord | None = None) -> SampledTokens:
        """As `ModelRunner.run`, on every rank. Raises WorkerError when a worker fails."""
        if self._writer is None:
            return super().run(batch, record)
        with self.workers.supervise():
            self.workers.send(RUN, self._writer.encode(batch))
            return CheckedTokens(super().run(batch, record), self.workers)

    def close(self) -> None:
        """End the workers."""
        self.workers.close()


def _join_torchrun(
    size: int, args: dict[str, Any], device: torch.device, seconds: float
) -> TorchrunWorkers:
    """Rank 0's workers; on another rank, serve rank 0 and then end this process."""
    group, control = torchrun.join(size, device, seconds)
    if group.rank == 0:
        return TorchrunWorkers(group, control)
    worker.worker_loop(partial(torchrun.receive, control), serve(group, args))
    group.abort()
    raise SystemExit(0)


def serve(group: TPGroup, args: dict[str, Any]) -> Mapping[int, Callable[["array[int]"], None]]:
    """A worker's side: its part of the model, and what to do with rank 0's messages."""
    folder = Path(args["folder"])
    config = EngineConfig.from_kwargs(**args["options"])
    runner = ModelRunner(config, read_model_config(folder), folder, group)
    reader = BatchReader()

    def run(values: "array[int]") -> None:
        runner.run(reader.decode(values))

    return {RUN: run}
