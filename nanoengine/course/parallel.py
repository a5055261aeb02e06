"""What the pictures of lesson 05 are drawn from: real layers' shards, and a measured step."""

import functools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import torch

from nanoengine.distributed import rpc, workers
from nanoengine.distributed.group import TPGroup
from nanoengine.distributed.worker import worker_setup
from nanoengine.engine import step_message
from nanoengine.engine.model_runner import ModelRunner
from nanoengine.layers.embed_head import ParallelLMHead, VocabParallelEmbedding
from nanoengine.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from nanoengine.viz.parallel import Cut, CutWeight, Span

if TYPE_CHECKING:
    from nanoengine.models.config import ModelConfig

# what is timed: (owner, attribute) -> its name in the picture; the collectives by their own names
_TIMED: dict[tuple[Any, str], str] = {
    (step_message.BatchWriter, "encode"): "write",
    (workers.Workers, "send"): "write",
    (rpc.Receiver, "receive"): "wait",
    (step_message.BatchReader, "decode"): "read",
    (ModelRunner, "run"): "run",
    (ModelRunner, "sample"): "sample",
    (TPGroup, "_together"): "collective",
}
_MICRO = 1e6


# -- which weight is cut along which axis ------------------------------------------------------


def model_cuts(config: "ModelConfig", ranks: int) -> list[CutWeight]:
    """The weights of embedding, one layer and head, cut as the engine's own layers cut them."""
    hidden, inner, dim = config.hidden_size, config.intermediate_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    groups = [TPGroup(rank, ranks) for rank in range(ranks)]
    with torch.device("meta"):
        qkv = [QKVParallelLinear(hidden, heads, kv_heads, dim, False, g) for g in groups]
        o_proj = [RowParallelLinear(heads * dim, hidden, False, g) for g in groups]
        gate_up = [ColumnParallelLinear(hidden, [inner, inner], False, g) for g in groups]
        down = [RowParallelLinear(inner, hidden, False, g) for g in groups]
        embed = [VocabParallelEmbedding(config.vocab_size, hidden, g) for g in groups]
        head = [ParallelLMHead(config.vocab_size, hidden, g) for g in groups]
    return [
        _vocabulary("embed_tokens", embed, "all_reduce"),
        _stacked("qkv_proj", ("q", "k", "v"), qkv),
        _columns("o_proj", o_proj),
        _stacked("gate_up_proj", ("gate", "up"), gate_up),
        _columns("down_proj", down),
        _vocabulary("lm_head", head, "gather"),
    ]


def _stacked(name: str, parts: tuple[str, ...], layers: "list[Any]", behind: str = "") -> CutWeight:
    cuts, before = [], 0
    for part, size in enumerate(layers[0].out_sizes):
        for rank, layer in enumerate(layers):
            rows = layer.slices[part]
            cuts.append(Cut(rank, 0, before + rows.start, before + rows.stop))
        before += size
    stacked = tuple(zip(parts, layers[0].out_sizes, strict=True))
    return CutWeight(name, (before, layers[0].in_features), stacked, tuple(cuts), behind)


def _columns(name: str, layers: list[RowParallelLinear]) -> CutWeight:
    cuts = [Cut(r, 1, layer.columns.start, layer.columns.stop) for r, layer in enumerate(layers)]
    shape = layers[0].out_features, layers[0].in_features
    return CutWeight(name, shape, ((name, shape[0]),), tuple(cuts), "all_reduce")


def _vocabulary(name: str, layers: "list[Any]", behind: str) -> CutWeight:
    cuts = [Cut(rank, 0, layer.first, layer.last) for rank, layer in enumerate(layers)]
    shape = layers[0].vocab_size, layers[0].hidden
    return CutWeight(name, shape, ((name, shape[0]),), tuple(cuts), behind)


# -- a step, measured on every rank ------------------------------------------------------------


@contextmanager
def recorded_spans(folder: Path) -> Iterator[None]:
    """Engines of several ranks that are built inside write what they do into the folder.

    A file a rank, lines of JSON; `read_steps` reads them once the engine is closed. Timing a call
    takes about a microsecond.
    """
    with ExitStack() as stack:
        for owner, name in _TIMED:
            stack.callback(setattr, owner, name, getattr(owner, name))
        setup = worker_setup(f"{__name__}:record", path=str(folder / "rank"))
        stack.enter_context(setup)
        stack.enter_context(record(str(folder / "rank")))
        yield


def record(path: str) -> TextIO:
    """Time this process's calls from now on; they go into the file that is returned."""
    file = open(f"{path}.{os.getpid()}", "a", encoding="utf-8")  # noqa: SIM115
    for (owner, name), what in _TIMED.items():
        setattr(owner, name, _timed(getattr(owner, name), what, file.write, file.flush))
    return file


def _timed(
    function: Callable[..., Any], what: str, write: Callable[[str], Any], flush: Callable[[], Any]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(self: Any, *args: Any, **options: Any) -> Any:
        start = time.monotonic()  # one clock for all processes of a host
        result = function(self, *args, **options)
        name = args[0] if what == "collective" else what
        rank = self.rank if what == "collective" else getattr(self, "group", None)
        rank = rank.rank if isinstance(rank, TPGroup) else rank
        write(json.dumps([rank, name, start, time.monotonic()]) + "\n")
        if what == "run":
            flush()
        return result

    return timed


def read_steps(folder: Path) -> list[list[Span]]:
    """The steps that were recorded, in order: each rank's spans in microseconds from its start.

    What came before the first message (loading, graphs) is left out.
    """
    ranks: dict[int, list[tuple[str, float, float]]] = {}
    for path in sorted(folder.glob("rank.*")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rank = next(line[0] for line in lines if line[0] is not None)
        ranks[rank] = [(name, start, end) for _, name, start, end in lines]
    steps: list[list[Span]] = []
    split = {rank: _split(lines, "write" if rank == 0 else "wait") for rank, lines in ranks.items()}
    for parts in zip(*(split[rank] for rank in sorted(split)), strict=False):
        zero = parts[0][0][1]
        steps.append(
            [
                Span(rank, name, _MICRO * (start - zero), _MICRO * (end - zero))
                for rank, part in zip(sorted(split), parts, strict=True)
                for name, start, end in part
            ]
        )
    return steps


def _split(
    lines: list[tuple[str, float, float]], first: str
) -> list[list[tuple[str, float, float]]]:
    """A rank's lines by step: each begins with rank 0's writing, or a worker's waiting."""
    steps: list[list[tuple[str, float, float]]] = []
    for line in sorted(lines, key=lambda line: line[1]):
        begins = line[0] == first and (not steps or any(name == "run" for name, *_ in steps[-1]))
        if begins:
            steps.append([])
        if steps:
            steps[-1].append(line)
    return [step for step in steps if any(name == "run" for name, *_ in step)]


def totals(steps: list[list[Span]]) -> Mapping[str, float]:
    """Median microseconds a step on rank 0: "write", "run", and "together" (its collectives)."""
    from statistics import median

    def of(step: list[Span], *names: str) -> float:
        return sum(s.end - s.start for s in step if s.rank == 0 and s.what in names)

    collectives = ("allreduce", "gather", "broadcast")
    return {
        "write": median(of(step, "write") for step in steps),
        "run": median(of(step, "run") for step in steps),
        "together": median(of(step, *collectives) for step in steps),
    }
