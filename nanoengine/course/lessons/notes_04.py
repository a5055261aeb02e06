"""Doubles for lesson 04's capture contract: a model and graphs that write down what happens."""

from collections.abc import Callable

import torch

from nanoengine.context import get_context
from nanoengine.engine.cuda_graph import GraphBuffers
from nanoengine.errors import EngineError

HIDDEN = 2
_BUFFERS = ("input_ids", "positions", "slot_mapping", "context_lens", "block_tables",
            "hidden_states")  # fmt: skip


class Notes:
    """What happened, in order.

    captures: (bucket, owner of the pool it was given or None, rows the model saw before, rows it
    saw while recording). fault: the first thing wrong with a call of the model.
    """

    def __init__(self, buffers: GraphBuffers) -> None:
        self.buffers = buffers
        self.addresses = {name: getattr(buffers, name).data_ptr() for name in _BUFFERS}
        self.recording: list[int] | None = None
        self.calls: list[int] = []
        self.captures: list[tuple[int, int | None, list[int], list[int]]] = []
        self.fault = ""

    def model(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[b] ids and positions -> [b, hidden], from them and from the context's tensors."""
        rows = len(input_ids)
        (self.calls if self.recording is None else self.recording).append(rows)
        self.fault = self.fault or self._fault(rows, input_ids, positions)
        try:
            lengths, tables = get_context().decode_tensors()
        except EngineError:
            return torch.zeros(rows, HIDDEN)
        count = min(rows, len(lengths))
        sums = input_ids[:count] * 100 + positions[:count] + lengths[:count] + tables[:count, 0]
        out = torch.zeros(rows, HIDDEN)
        out[:count] = sums[:, None].float()
        return out

    def _fault(self, rows: int, input_ids: torch.Tensor, positions: torch.Tensor) -> str:
        seen = {"input_ids": input_ids, "positions": positions}
        try:
            context = get_context()
        except EngineError:
            return "no context is in use when the model runs: open captured_context around it"
        for name in ("slot_mapping", "context_lens", "block_tables"):
            tensor = getattr(context, name)
            if tensor is None:
                return f"the context has no {name}: use buffers.context(bucket)"
            seen[name] = tensor
        for name, tensor in seen.items():
            if tensor.data_ptr() != self.addresses[name]:
                return (
                    f"{name} is no part of buffers.{name}: what is staged there later would not "
                    "reach the graph"
                )
            if len(tensor) != rows:
                return f"the model gets {rows} rows of input_ids and {len(tensor)} of {name}"
        return "" if not context.is_prefill else "the context is a prefill's"


class NotingGraph:
    """A graph that writes down its capture. As with real ones, a shared pool keeps its owner."""

    def __init__(self, notes: Notes, bucket: int) -> None:
        self.notes, self.bucket = notes, bucket
        self._body: Callable[[], None] | None = None
        self._pool: int = bucket

    def capture(self, body: Callable[[], None], pool: object) -> None:
        """Run the body once, as recording does; TypeError where it is no function."""
        if not callable(body):
            raise TypeError("capture wants the body itself, not its result: capture(body, pool)")
        before, recorded = list(self.notes.calls), list[int]()
        self.notes.recording = recorded
        try:
            body()
        finally:
            self.notes.recording = None
        owner = pool if isinstance(pool, int) else None
        self.notes.captures.append((self.bucket, owner, before, recorded))
        self._pool = self.bucket if owner is None else owner
        self._body = body

    def replay(self) -> None:
        """Run the body again."""
        if self._body is not None:
            self._body()

    def pool(self) -> object:
        """The bucket whose memory it is."""
        return self._pool
