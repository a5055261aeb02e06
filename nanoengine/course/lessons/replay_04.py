"""Lesson 04 on a real device: a toy model whose graphs replay a batch that shrinks and grows.

Everything is small whole numbers, so a CPU and a GPU give exactly the same. On the CPU the graphs
are the strict double, on a GPU they are real. No operation here waits for the device: what does
cannot be captured.
"""

from collections.abc import Callable
from typing import Any

import torch

from nanoengine.context import Context, captured_context, get_context
from nanoengine.engine import cuda_graph
from nanoengine.engine.cuda_graph import CudaGraph, Graph, GraphBuffers, GraphDouble

BLOCK = 4
BUCKETS = (1, 2, 4, 8, 11)
_BLOCKS = 24  # few, so that a finished sequence's blocks are soon another's
_MAX_BLOCKS = 4
_HIDDEN = 2


class Toy:
    """One layer: each token's number is stored in its slot; a row's output sums its context.

    cache: [slots + 1]; the last one takes what padded rows write.
    """

    def __init__(self, device: torch.device) -> None:
        self.cache = torch.zeros(_BLOCKS * BLOCK + 1, device=device)

    def __call__(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[b] ids and positions -> [b, hidden]: the context's sum, and the position."""
        context = get_context()
        lengths, tables = context.decode_tensors()
        slots = context.slot_mapping.long()
        slots = torch.where(slots < 0, len(self.cache) - 1, slots)
        self.cache.index_copy_(0, slots, input_ids.float())
        place = torch.arange(_MAX_BLOCKS * BLOCK, device=input_ids.device)[None]
        live = place < lengths[:, None]
        column = (place // BLOCK).clamp(max=tables.shape[1] - 1)
        blocks = tables.long().gather(1, column.expand(len(tables), -1))
        read = torch.where(live, blocks * BLOCK + place % BLOCK, len(self.cache) - 1)
        sums = torch.where(live, self.cache[read], 0.0).sum(dim=1)
        return torch.stack([sums, positions.float()], dim=1)


def toy_steps() -> list[list[tuple[int, list[int]]]]:
    """Batches of (length, block table) rows: 11 sequences, one fewer each step, then six new ones.

    The last row leaves just after its first token in a block, and another sequence goes on in
    that block at once: a padded row that still writes there spoils it.
    """
    rows = [(1 + (BUCKETS[-1] - 1 - k) * 3 % BLOCK, [k]) for k in range(BUCKETS[-1])]
    free = list(range(len(rows), _BLOCKS))
    steps = [rows]
    while len(rows) > 1:
        *rows, (_, left) = rows
        free = left + free
        rows = [
            (length + 1, [*table, free.pop(0)] if length % BLOCK == 0 else table)
            for length, table in rows
        ]
        steps.append(rows)
    steps.append([*rows, *((1, [free.pop(0)]) for _ in range(6))])
    return steps


def replay_toy(
    capture_all: Callable[..., dict[int, Graph]], stage_inputs: Callable[..., None], name: str
) -> dict[str, Any]:
    """Outputs of every step's replay, and the cache at the end, on the device called `name`."""
    device = torch.device(name)
    model = Toy(device)
    buffers = GraphBuffers.allocate(BUCKETS[-1], _MAX_BLOCKS, _HIDDEN, torch.float32, device)

    def new_graph(bucket: int) -> Graph:
        return GraphDouble(buffers, bucket) if device.type == "cpu" else CudaGraph()

    outputs = []
    with torch.inference_mode():
        graphs = capture_all(model, buffers, list(BUCKETS), new_graph)
        for number, rows in enumerate(toy_steps()):
            ids, positions, context = _tensors(rows, number, device)
            bucket = cuda_graph.pick_bucket(len(rows), BUCKETS)
            assert bucket is not None
            stage_inputs(buffers, ids, positions, context, bucket)
            with captured_context(context):  # live, and of no use to a graph
                graphs[bucket].replay()
            outputs.append(buffers.hidden_states[: len(rows)].tolist())
    return {"outputs": outputs, "cache": model.cache[:-1].tolist()}


def _tensors(
    rows: list[tuple[int, list[int]]], step: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, Context]:
    width = max(len(table) for _, table in rows)
    slots = [table[-1] * BLOCK + (length - 1) % BLOCK for length, table in rows]
    tables = [table + [-1] * (width - len(table)) for _, table in rows]
    lengths = [length for length, _ in rows]

    def on_device(values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    ids = on_device([100 * step + i + 1 for i in range(len(rows))], torch.int64)
    positions = on_device([length - 1 for length in lengths], torch.int64)
    context = Context(
        is_prefill=False,
        slot_mapping=on_device(slots),
        context_lens=on_device(lengths),
        block_tables=on_device(tables),
    )
    return ids, positions, context


def probe_capture(function: Callable[..., Any], device: str) -> Any:
    """`replay_toy` with the student's capture_all and the library's stage_inputs."""
    return replay_toy(function, cuda_graph.stage_inputs, device)


def probe_stage(function: Callable[..., Any], device: str) -> Any:
    """The other way round."""
    return replay_toy(cuda_graph.capture_all, function, device)
