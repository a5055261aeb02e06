"""Lesson 04's contract for capturing: a model and graphs that write down what is done with them."""

from collections.abc import Callable
from typing import Any

import torch

from nanoengine.context import Context, _state, get_context, use_context
from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, MutatedArgument, show
from nanoengine.engine.cuda_graph import GraphBuffers
from nanoengine.errors import EngineError

Args = tuple[Any, ...]
_BLOCKS, _HIDDEN = 3, 2
_UNTOUCHED = -5.0  # in hidden_states before a replay
_BUFFERS = ("input_ids", "positions", "slot_mapping", "context_lens", "block_tables",
            "hidden_states")  # fmt: skip


def capture_cases() -> list[Case]:
    """What is looked at, and the buckets; each case captures anew."""
    small, eleven = [1, 2, 4], [1, 2, 4, 8, 11]
    hand: list[tuple[str, list[int]]] = [
        ("a graph for every bucket", small),
        ("the model's inputs", small),
        ("the rows of a bucket", small),
        ("run before capture", small),
        ("largest first", small),
        ("one pool", small),
        ("replay", small),
        ("replay", [3]),
        ("replay inside a step", small),
        ("a graph for every bucket", eleven),
        ("run before capture", eleven),
        ("one pool", eleven),
        ("replay inside a step", eleven),
    ]
    return [Case(check, f"buckets {buckets}", (check, buckets)) for check, buckets in hand]


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
            return torch.zeros(rows, _HIDDEN)
        count = min(rows, len(lengths))
        sums = input_ids[:count] * 100 + positions[:count] + lengths[:count] + tables[:count, 0]
        out = torch.zeros(rows, _HIDDEN)
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
        """Run the body once, as recording does."""
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


def capture_arguments(args: Args) -> tuple[Any, ...]:
    """The model, buffers, buckets and graphs of a case; the first argument tells what to replay."""
    check, buckets = args
    device = torch.device("cpu")
    buffers = GraphBuffers.allocate(max(buckets), _BLOCKS, _HIDDEN, torch.float32, device)
    return check, Notes(buffers), list(buckets)


def observe_capture(function: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Capture, then replay every graph; everything that was seen, as plain data.

    Raises MutatedArgument when the list of buckets changed.
    """
    check, notes, buckets = args
    given = list(buckets)
    _state.current = None

    def new_graph(bucket: int) -> NotingGraph:
        return NotingGraph(notes, bucket)

    try:
        graphs = _captured(function, notes, buckets, new_graph)
        left = _state.current is not None
        if buckets != given:
            raise MutatedArgument("argument 3, buckets: the engine picks from that very list")
        seen: dict[str, Any] = {"kind": type(graphs).__name__, "context left": left}
        if isinstance(graphs, dict):
            seen["graphs"] = {str(key): getattr(g, "bucket", None) for key, g in graphs.items()}
            seen["captures"] = [list(entry) for entry in notes.captures]
            seen["fault"] = notes.fault
            seen["replaced"] = _replaced(notes)
            if check.startswith("replay"):
                live = check == "replay inside a step"
                seen["replays"] = [_replay(notes, graphs, bucket, live) for bucket in given]
        return seen
    finally:
        _state.current = None


def _captured(
    function: Callable[..., Any], notes: Notes, buckets: list[int], new_graph: Callable[..., Any]
) -> Any:
    """The function's result; torch's words for a missing GPU say what to do instead."""
    try:
        return function(notes.model, notes.buffers, buckets, new_graph)
    except RuntimeError as error:
        if "dummy base class" in str(error):
            error.args = ("torch.cuda's graphs need a GPU; new_graph(bucket) makes the right kind",)
        raise


def _replaced(notes: Notes) -> str | None:
    for name, address in notes.addresses.items():
        if getattr(notes.buffers, name).data_ptr() != address:
            return name
    return None


def _replay(notes: Notes, graphs: dict[int, Any], bucket: int, live: bool) -> str:
    """What a replay on new inputs does, in words; "" when it is right."""
    buffers, rows = notes.buffers, torch.arange(len(notes.buffers.input_ids))
    buffers.input_ids.copy_(rows + 3 * bucket)
    buffers.positions.copy_(rows + 7)
    buffers.context_lens.copy_(rows + 8)
    buffers.block_tables.copy_(rows[:, None] + 40)
    buffers.hidden_states.fill_(_UNTOUCHED)
    notes.calls.clear()
    right = (buffers.input_ids * 100 + 55 + 3 * rows).float()
    try:
        if live:
            other = Context(False, rows.int(), context_lens=rows.int(),
                            block_tables=rows[:, None].int())  # fmt: skip
            with use_context(other):
                graphs[bucket].replay()
        else:
            graphs[bucket].replay()
    except Exception as error:
        return f"raised {type(error).__name__}: {str(error)[:70]}"
    computed = notes.calls[-1] if notes.calls else 0
    if computed != bucket:
        return f"computed {computed} rows"
    out = buffers.hidden_states
    if (out[:bucket] == _UNTOUCHED).all():
        return "left hidden_states as it was"
    if (out[bucket:] != _UNTOUCHED).any():
        return "wrote rows of hidden_states that are not its own"
    return "" if torch.equal(out[:bucket, 0], right[:bucket]) else "gave other numbers"


# -- words -------------------------------------------------------------------------------------


def compare_capture(case: Case, expected: Any, got: Any) -> Difference | None:
    """What the case looks at; a result that is no dict of graphs first."""
    check, buckets = case.args
    if got["kind"] == "NoneType":
        return Difference("expected {bucket: graph}, you returned None: is a `return` missing?")
    if "graphs" not in got:
        return Difference(f"expected a dict {{bucket: graph}}, you returned a {got['kind']}")
    return _LOOKS[check](buckets, got)


def _graphs(buckets: list[int], got: Any) -> Difference | None:
    graphs = got["graphs"]
    for bucket in buckets:
        if str(bucket) not in graphs:
            return Difference(f"there is no graph for bucket {bucket}: keys {show(list(graphs))}")
        if graphs[str(bucket)] is None:
            return Difference(f"graphs[{bucket}] is no graph that new_graph made")
        if graphs[str(bucket)] != bucket:
            return Difference(
                f"graphs[{bucket}] is the graph that new_graph made for {graphs[str(bucket)]}"
            )
    captured = [entry[0] for entry in got["captures"]]
    missing = [bucket for bucket in buckets if bucket not in captured]
    if missing:
        return Difference(f"the graph of bucket {missing[0]} was never captured")
    if got["context left"]:
        return Difference("a context is still in use afterwards: open it with `with`")
    return None


def _inputs(buckets: list[int], got: Any) -> Difference | None:
    if got["replaced"]:
        return Difference(
            f"buffers.{got['replaced']} is another tensor afterwards: graphs know the captured "
            "address; copy into it"
        )
    return Difference(got["fault"]) if got["fault"] else None


def _rows(buckets: list[int], got: Any) -> Difference | None:
    for bucket, _, _, recorded in got["captures"]:
        if recorded != [bucket]:
            what = f"computes {recorded[-1]} rows" if recorded else "does not call the model"
            if len(recorded) > 1:
                what = f"calls the model {len(recorded)} times"
            return Difference(
                f"the graph of bucket {bucket} {what}: it should call it once, on {bucket} rows"
            )
    return None


def _run_before(buckets: list[int], got: Any) -> Difference | None:
    for bucket, _, before, _ in got["captures"]:
        if bucket not in before:
            return Difference(
                f"the model never ran on {bucket} rows before bucket {bucket} was captured: its "
                "kernels would be compiled while recording, which CUDA refuses"
            )
    return None


def _order(buckets: list[int], got: Any) -> Difference | None:
    order = [entry[0] for entry in got["captures"]]
    if order == sorted(buckets, reverse=True):
        return None
    return Difference(
        f"captured in the order {show(order)}: the largest should come first, so that the memory "
        "it takes is large enough for all others"
    )


def _pool(buckets: list[int], got: Any) -> Difference | None:
    first = got["captures"][0][0] if got["captures"] else None
    for index, (bucket, owner, _, _) in enumerate(got["captures"]):
        wanted = None if index == 0 else first
        if owner != wanted:
            right = "None" if wanted is None else f"the pool of bucket {wanted}'s graph"
            mine = "None" if owner is None else f"the pool of {owner}"
            why = "graphs with pools of their own keep their own copies of all intermediates"
            if wanted is None:
                why = "before the first capture there is no memory to share"
            return Difference(
                f"bucket {bucket} should be captured with pool={right}, it was with {mine}: {why}"
            )
    return None


def _replays(buckets: list[int], got: Any) -> Difference | None:
    for bucket, words in zip(buckets, got["replays"], strict=True):
        if words:
            return Difference(f"the replay of bucket {bucket} {words}{_why(words)}")
    return None


def _why(words: str) -> str:
    if words.startswith("computed"):
        return ": is it the loop's variable as it is at the end? Bind it: def body(bucket=bucket)"
    if words.startswith("left"):
        return ": copy the model's result into it, inside the body"
    if words.startswith("gave"):
        return ": the double calls the body again, so the body itself must open captured_context"
    if words.startswith("raised EngineError"):
        return "; captured_context may be opened inside a step, use_context may not"
    return ""


_LOOKS: dict[str, Callable[[list[int], Any], Difference | None]] = {
    "a graph for every bucket": _graphs,
    "the model's inputs": _inputs,
    "the rows of a bucket": _rows,
    "run before capture": _run_before,
    "largest first": _order,
    "one pool": _pool,
    "replay": _replays,
    "replay inside a step": _replays,
}
