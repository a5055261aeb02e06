"""Lesson 04's contract for capturing: cases, and what is observed of each."""

from collections.abc import Callable
from typing import Any

import torch

from nanoengine.context import Context, _state, use_context
from nanoengine.course.lessons.notes_04 import HIDDEN, Notes, NotingGraph
from nanoengine.course.registry import Case
from nanoengine.course.values import MutatedArgument
from nanoengine.engine.cuda_graph import GraphBuffers

Args = tuple[Any, ...]
_BLOCKS = 3
_UNTOUCHED = -5.0  # in hidden_states before a replay


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


def capture_arguments(args: Args) -> tuple[Any, ...]:
    """The model, buffers, buckets and graphs of a case; the first argument tells what to replay."""
    check, buckets = args
    device = torch.device("cpu")
    buffers = GraphBuffers.allocate(max(buckets), _BLOCKS, HIDDEN, torch.float32, device)
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
