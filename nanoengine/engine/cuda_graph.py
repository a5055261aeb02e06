"""Decode steps as CUDA graphs: batch buckets, static buffers, capture and replay.

A graph repeats recorded kernels on recorded addresses: on replay only the data in the buffers may
differ. So every input has one static buffer, one graph is captured for each of a few batch
sizes, and a batch is padded up to the next of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch

from nanoengine.context import Context, captured_context
from nanoengine.errors import GraphError

MODEL = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Addresses = dict[str, tuple[int, torch.Size]]


def graph_buckets(max_num_seqs: int, limit: int = 512, step: int = 16) -> list[int]:
    """Batch sizes to capture: 1, 2, 4, 8, then every `step`, always ending at the largest batch.

    >>> graph_buckets(40)
    [1, 2, 4, 8, 16, 32, 40]

    A batch larger than `limit` runs eagerly, so it needs no graph. The end matters: without it a
    maximum of 100 would stop at 96, and 97 would find no graph.
    """
    largest = min(max_num_seqs, limit)
    small = [size for size in (1, 2, 4, 8) if size < min(largest, step)]
    return [*small, *range(step, largest, step), largest]


def pick_bucket(batch_size: int, buckets: Sequence[int]) -> int | None:
    """The smallest bucket that holds the batch; None when there is none: run eagerly.

    buckets: ascending; empty in an engine without graphs.

    >>> pick_bucket(37, graph_buckets(512))
    48
    """
    return next((bucket for bucket in buckets if bucket >= batch_size), None)


@dataclass(slots=True)
class GraphBuffers:
    """Static tensors that every captured graph reads and writes; a graph of size b uses rows [:b].

    input_ids, positions: [max_batch] int64; slot_mapping, context_lens: [max_batch] int32;
    block_tables: [max_batch, max_blocks] int32; hidden_states: [max_batch, hidden].
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    context_lens: torch.Tensor
    block_tables: torch.Tensor
    hidden_states: torch.Tensor

    @classmethod
    def allocate(
        cls, max_batch: int, max_blocks: int, hidden: int, dtype: torch.dtype, device: torch.device
    ) -> "GraphBuffers":
        """Buffers for up to max_batch sequences of up to max_blocks blocks; all rows padding."""
        return cls(
            input_ids=torch.zeros(max_batch, dtype=torch.int64, device=device),
            positions=torch.zeros(max_batch, dtype=torch.int64, device=device),
            slot_mapping=torch.full((max_batch,), -1, dtype=torch.int32, device=device),
            context_lens=torch.zeros(max_batch, dtype=torch.int32, device=device),
            block_tables=torch.zeros(max_batch, max_blocks, dtype=torch.int32, device=device),
            hidden_states=torch.zeros(max_batch, hidden, dtype=dtype, device=device),
        )

    def context(self, bucket: int) -> Context:
        """The decode context whose tensors are this bucket's rows of the buffers."""
        return Context(
            is_prefill=False,
            slot_mapping=self.slot_mapping[:bucket],
            context_lens=self.context_lens[:bucket],
            block_tables=self.block_tables[:bucket],
        )


def stage_inputs(
    buffers: GraphBuffers,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    context: Context,
    bucket: int,
) -> None:
    """Copy a batch of b <= bucket sequences into the buffers and make rows [b, bucket) harmless.

    input_ids, positions: [b] int64; the context's slot_mapping, context_lens: [b] int32;
    its block_tables: [b, w] int32, where w may be smaller than the buffer's width.

    A graph knows addresses: the buffers are written, never replaced. A padded row has slot -1, so
    it writes no K and V, and length 0, so it reads none; its token id, position and block table
    may keep old values.
    """
    batch = len(input_ids)
    context_lens, block_tables = context.decode_tensors()
    buffers.input_ids[:batch] = input_ids
    buffers.positions[:batch] = positions
    buffers.slot_mapping[:batch] = context.slot_mapping
    buffers.slot_mapping[batch:bucket] = -1
    buffers.context_lens[:batch] = context_lens
    buffers.context_lens[batch:bucket] = 0
    buffers.block_tables[:batch, : block_tables.shape[1]] = block_tables


class Graph(Protocol):
    """One captured batch size: a real CUDA graph, or its CPU double."""

    def capture(self, body: Callable[[], None], pool: object) -> None:
        """Record what `body` does; `pool` is another graph's memory to share, or None."""
        ...

    def replay(self) -> None:
        """Do it again, on whatever the buffers hold now."""
        ...

    def pool(self) -> object:
        """Handle of the graph's memory, for the next capture."""
        ...


def capture_all(
    model: MODEL,
    buffers: GraphBuffers,
    buckets: Sequence[int],
    new_graph: Callable[[int], Graph],
) -> dict[int, Graph]:
    """Capture the model's body once for each bucket: {bucket: graph}.

    A body calls the model on rows [:bucket] of input_ids and positions, inside
    `captured_context(buffers.context(bucket))`, and copies the [bucket, hidden] result into rows
    [:bucket] of hidden_states. `new_graph(bucket)` makes a graph, `graph.capture(body, pool)`
    records the body; the CPU double calls it again at every replay.

    Largest first, so that the smaller graphs fit into its memory: `pool` is None at first, then
    the first graph's `pool()`. Each body runs once before its capture: what compiles or allocates
    on a first call must not do so while recording.
    """
    graphs: dict[int, Graph] = {}
    pool: object = None
    for bucket in sorted(buckets, reverse=True):

        def body(bucket: int = bucket) -> None:
            with captured_context(buffers.context(bucket)):
                hidden = model(buffers.input_ids[:bucket], buffers.positions[:bucket])
            buffers.hidden_states[:bucket] = hidden

        body()
        graph = new_graph(bucket)
        graph.capture(body, pool)
        pool = graph.pool() if pool is None else pool
        graphs[bucket] = graph
    return graphs


class CudaGraph:
    """A real graph on a CUDA device."""

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, body: Callable[[], None], pool: object) -> None:
        """Record the kernels that `body` launches."""
        torch.cuda.synchronize()
        with torch.cuda.graph(self._graph, pool=pool):  # type: ignore[arg-type]
            body()

    def replay(self) -> None:
        """Launch all recorded kernels at once."""
        self._graph.replay()

    def pool(self) -> object:
        """Handle of the graph's memory pool."""
        return self._graph.pool()


def addresses(buffers: Any) -> Addresses:
    """Where each tensor of a dataclass of buffers lies, and its shape."""
    tensors = {f.name: getattr(buffers, f.name) for f in fields(buffers)}
    return {name: (tensor.data_ptr(), tensor.shape) for name, tensor in tensors.items()}


def refuse_replaced(buffers: Any, captured: Addresses) -> None:
    """Raise GraphError when a buffer is not the tensor any more that it was at capture."""
    for name, now in addresses(buffers).items():
        if now != captured[name]:
            raise GraphError(
                f"buffer {name} is another tensor than at capture: a graph reads the captured "
                "address; copy into the buffer instead of replacing it"
            )


def new_graph(buffers: GraphBuffers, bucket: int) -> Graph:
    """A graph for these buffers' device: a real one, or the CPU's double."""
    return CudaGraph() if buffers.input_ids.is_cuda else GraphDouble(buffers, bucket)


class GraphDouble:
    """The CPU's stand-in: obeys the rules of a real graph and complains where one would not.

    It computes on the addresses and shapes of the capture, whatever the live Context says;
    buffers replaced since are an error, and so is a row that is neither a sequence nor padding;
    padded rows are filled with garbage before, so that one that is read shows, and their results
    are NaN.
    """

    def __init__(self, buffers: GraphBuffers, bucket: int) -> None:
        self.buffers, self.bucket = buffers, bucket
        self._body: Callable[[], None] | None = None
        self._captured: Addresses = {}

    def capture(self, body: Callable[[], None], pool: object) -> None:
        """Remember `body` and the buffers it works on (it has just run once: no need to again)."""
        self._body, self._captured = body, addresses(self.buffers)

    def replay(self) -> None:
        """Run again on the captured buffers. Raises GraphError where a real graph would fail."""
        if self._body is None:
            raise GraphError(f"the graph of bucket {self.bucket} is replayed before its capture")
        refuse_replaced(self.buffers, self._captured)
        b, rows = self.buffers, self._padded_rows()
        b.input_ids[rows] = 0
        b.positions[rows] = 0
        b.block_tables[rows] = torch.iinfo(torch.int32).max
        self._body()
        b.hidden_states[rows] = torch.nan
        b.block_tables[rows] = 0

    def _padded_rows(self) -> torch.Tensor:
        """Indices of the rows that are padding; on a GPU half-padded ones would waste or harm."""
        slots = self.buffers.slot_mapping[: self.bucket]
        lengths = self.buffers.context_lens[: self.bucket]
        padded = slots < 0
        half = (padded != (lengths == 0)).nonzero().flatten()
        if len(half):
            row = int(half[0])
            raise GraphError(
                f"row {row} of bucket {self.bucket} has slot {int(slots[row])} and context_lens "
                f"{int(lengths[row])}: a sequence has a slot and a length, padding has -1 and 0"
            )
        return padded.nonzero().flatten()

    def pool(self) -> object:
        """The double shares no memory; any value other than None will do."""
        return self
