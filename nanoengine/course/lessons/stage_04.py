"""Lesson 04's contract for staging: what the static buffers hold after a batch was copied in."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from nanoengine.context import Context
from nanoengine.course.lessons.tensors import same_bits
from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, MutatedArgument
from nanoengine.engine.cuda_graph import GraphBuffers

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture

Args = tuple[Any, ...]
BLOCK = 4
_CASES = 50
_NAMES = ("input_ids", "positions", "slot_mapping", "context_lens", "block_tables")
_STALE_ID, _STALE_BLOCK = 50, 90  # what earlier steps left; row i holds _STALE_ID + i, and so on


def stage_cases() -> list[Case]:
    """(rows of the buffers, columns of the tables, bucket, context lengths, rows an earlier step
    left): from one row to batches that shrink.
    """
    hand: list[tuple[str, Args]] = [
        ("one row", (4, 3, 1, [5], 0)),
        ("a full bucket", (8, 3, 4, [1, 6, 12, 3], 0)),
        ("padding in fresh buffers", (8, 3, 4, [7, 2, 9], 0)),
        ("padding after a larger batch", (8, 3, 4, [7, 2, 9], 4)),
        ("padding after a larger batch", (8, 3, 8, [3, 3, 3, 3, 3], 8)),
        ("block 0 and slot 0", (4, 2, 2, [1], 4)),
        ("narrow tables", (8, 6, 4, [2, 4, 1], 8)),
        ("tables as wide as the buffer", (4, 3, 4, [12, 9, 11], 4)),
        ("37 in bucket 48", (64, 4, 48, [1 + i % 14 for i in range(37)], 64)),
    ]
    rng = random.Random(403)
    seen = {repr(args) for _, args in hand}
    while len(hand) < _CASES:
        bucket = rng.choice((1, 2, 4, 8, 11))
        batch = rng.randint(max(1, bucket // 2), bucket)
        columns = rng.randint(2, 5)
        lengths = [rng.randint(1, columns * BLOCK) for _ in range(batch)]
        args = (11, columns, bucket, lengths, rng.randint(0, 11))
        if repr(args) not in seen:
            seen.add(repr(args))
            hand.append(("random batches", args))
    return [Case(check, _situation(args), args) for check, args in hand]


def _situation(args: Args) -> str:
    _, _, bucket, lengths, before = args
    batch = f"{len(lengths)} sequence{'s' if len(lengths) > 1 else ''} in bucket {bucket}"
    after = "fresh buffers" if not before else f"after a step of {before}"
    return f"{batch}, {after}"


def stage_arguments(args: Args) -> tuple[Any, ...]:
    """Buffers as an earlier step left them, and a batch on blocks of its own, block 0 first."""
    max_batch, columns, bucket, lengths, before = args
    buffers = GraphBuffers.allocate(max_batch, columns, 2, torch.float32, torch.device("cpu"))
    for row in range(before):
        buffers.input_ids[row] = _STALE_ID + row
        buffers.positions[row] = row % 7
        buffers.slot_mapping[row] = (_STALE_BLOCK + row) * BLOCK
        buffers.context_lens[row] = 1 + row % (columns * BLOCK)
        buffers.block_tables[row] = _STALE_BLOCK + row
    tables, block = [], 0
    for length in lengths:
        owned = -(-length // BLOCK)
        tables.append(list(range(block, block + owned)))
        block += owned
    width = max(len(table) for table in tables)
    slots = [t[-1] * BLOCK + (n - 1) % BLOCK for t, n in zip(tables, lengths, strict=True)]

    def ints(values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype)

    context = Context(
        is_prefill=False,
        slot_mapping=ints(slots),
        context_lens=ints(lengths),
        block_tables=ints([table + [-1] * (width - len(table)) for table in tables]),
    )
    ids = ints([7 + 3 * i for i in range(len(lengths))], torch.int64)
    return buffers, ids, ints(lengths, torch.int64) - 1, context, bucket


def observe_stage(function: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """The buffers' rows [:bucket]; which buffer is another tensor, and what was returned.

    Raises MutatedArgument when the batch's own tensors changed.
    """
    buffers, ids, positions, context, bucket = args
    own = {"input_ids": ids, "positions": positions, "slot_mapping": context.slot_mapping,
           "context_lens": context.context_lens, "block_tables": context.block_tables}  # fmt: skip
    before = {name: tensor.clone() for name, tensor in own.items()}
    memory = {name: getattr(buffers, name) for name in _NAMES}
    captured = {name: (t.data_ptr(), t.shape, t.dtype) for name, t in memory.items()}
    function(*args)
    for name, tensor in own.items():
        if not same_bits(tensor, before[name]):
            raise MutatedArgument(f"argument: the batch's own {name} was written")
    replaced = None
    for name in _NAMES:
        now = getattr(buffers, name)
        is_tensor = isinstance(now, torch.Tensor)
        if not is_tensor or (now.data_ptr(), now.shape, now.dtype) != captured[name]:
            replaced = name
            break
    held = {name: tensor[:bucket].tolist() for name, tensor in memory.items()}
    return {"replaced": replaced, **held}


def compare_stage(case: Case, expected: Any, got: Any) -> Difference | None:
    """A buffer replaced; then live rows, field by field; then padded rows."""
    if got["replaced"]:
        return Difference(
            f"buffers.{got['replaced']} is another tensor afterwards: the graph still reads the "
            "captured one; copy into its rows, buffers.x[:b] = ..."
        )
    bucket, lengths = case.args[2], case.args[3]
    batch = len(lengths)
    for name in _NAMES:
        for row in range(batch):
            wrong = _live(name, row, expected[name][row], got[name][row], -(-lengths[row] // BLOCK))
            if wrong:
                return wrong
    for row in range(batch, bucket):
        wrong = _padded(row, {name: got[name][row] for name in _NAMES})
        if wrong:
            return wrong
    return None


def _live(name: str, row: int, wanted: Any, given: Any, owned: int) -> Difference | None:
    """owned: blocks of the sequence; what its table holds behind them is never read."""
    if name == "block_tables":
        wanted, given = wanted[:owned], given[:owned]
    if wanted == given:
        return None
    why = ""
    stale = {"slot_mapping": _STALE_BLOCK * BLOCK, "block_tables": [_STALE_BLOCK]}.get(name)
    if given in (0, -1) and wanted not in (0, -1):
        why = ": it was not copied, or filled afterwards"
    elif stale is not None and given >= stale:
        why = ", an earlier step's"
    return Difference(f"row {row} of {name} should be {wanted}, it is {given}{why}")


def _padded(row: int, held: dict[str, Any]) -> Difference | None:
    """A padded row must write nothing, read nothing, and be computable."""
    slot, length = held["slot_mapping"], held["context_lens"]
    if slot >= 0:
        old = "an earlier step's slot" if slot >= _STALE_BLOCK * BLOCK else f"block {slot // BLOCK}"
        return Difference(
            f"row {row} is padding: its slot should be -1, it is {slot}: the replay writes K and V "
            f"there, {old} that may be another sequence's now"
        )
    if length != 0:
        return Difference(
            f"row {row} is padding: its context_lens should be 0, it is {length}: attention reads "
            "old blocks for a row that nobody wants"
        )
    for name in ("input_ids", "positions"):
        if held[name] < 0:
            return Difference(
                f"row {row} is padding, but its {name} is {held[name]}: it is computed all the "
                "same, and a negative index leads outside a table"
            )
    if slot != -1:
        return Difference(f"row {row}: the contract pads with slot -1, you with {slot}", False)
    return None


def draw_stage(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The bucket's rows as they should be, and the student's."""
    from nanoengine.viz.graphs import padded_bucket

    bucket, lengths = args[2], args[3]
    mine = {name: got[name] for name in ("slot_mapping", "context_lens")}
    return padded_bucket(
        len(lengths), bucket, expected["slot_mapping"], expected["context_lens"], got=mine
    )
