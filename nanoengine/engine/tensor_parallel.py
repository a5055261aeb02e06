"""One engine on several ranks: rank 0 schedules and samples, the others run the same batches."""

from array import array
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nanoengine.config import EngineConfig
from nanoengine.distributed import torchrun, worker
from nanoengine.distributed.group import TPGroup
from nanoengine.distributed.launch import launch
from nanoengine.distributed.rpc import RUN
from nanoengine.distributed.torchrun import TorchrunWorkers
from nanoengine.distributed.workers import Workers
from nanoengine.engine.model_runner import ModelRunner
from nanoengine.engine.record import StepRecord
from nanoengine.engine.sampling import SampledTokens
from nanoengine.engine.sequence import Batch
from nanoengine.engine.step_message import BatchReader, BatchWriter
from nanoengine.layers import linear
from nanoengine.models.config import ModelConfig, read_model_config

_TARGET = f"{__name__}:serve"


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
            plain = config.attention_backend == "reference"  # then no layer uses our kernels
            inbox = not (config.disable_custom_all_reduce or plain)
            self.workers = launch(size, _TARGET, args, device, config.worker_timeout, inbox)
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
    try:
        worker.worker_loop(partial(torchrun.receive, control), serve(group, args))
    finally:
        group.abort()  # or the process would not end, and torchrun sees only its end
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
