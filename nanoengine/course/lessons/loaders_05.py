"""Lesson 05's contracts for the loaders: the right rows or columns, and nothing else is read."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nanoengine.course.lessons.slices_05 import RANDOM_CASES, Args
from nanoengine.course.registry import Case
from nanoengine.course.values import Difference

if TYPE_CHECKING:
    import torch

    from nanoengine.viz.style import Picture

_UNTOUCHED = -7.0  # what a target holds before
_COLUMN = 1 / 64  # a number on disk is 1000 * (part + 1) + row + column / 64: exact in float32


class DiskTensor:
    """A tensor on disk, as safetensors gives it: indexing reads, and what was read is counted."""

    def __init__(self, values: "torch.Tensor") -> None:
        self._values = values
        self.read = 0

    def get_shape(self) -> list[int]:
        """Sizes of the whole tensor."""
        return list(self._values.shape)

    def __getitem__(self, index: Any) -> "torch.Tensor":
        """The indexed part. Raises TypeError for what is no slice or number."""
        for one in index if isinstance(index, tuple) else (index,):
            if not isinstance(one, slice | int | type(...)):
                kind = type(one).__name__
                raise TypeError(f"a tensor on disk is indexed by slices, not by a {kind}")
        part = self._values[index].clone()
        self.read += part.numel()
        return part


def on_disk(sizes: tuple[int, ...], part: int, dtype: str) -> DiskTensor:
    """A weight [rows, columns] or bias [rows] whose every number says where it stands."""
    import torch

    values = 1000.0 * (part + 1) + torch.arange(sizes[0], dtype=torch.float32)
    if len(sizes) == 2:
        values = values[:, None] + torch.arange(sizes[1], dtype=torch.float32) * _COLUMN
    return DiskTensor(values.to(getattr(torch, dtype)))


def rows_cases() -> list[Case]:
    """(slices of the parts, their sizes on disk, columns or 0: a bias, part to read, dtype)."""
    gate_up = [[[0, 4], [0, 4]], [[4, 8], [4, 8]]]
    qkv = [[4, 8], [2, 4], [2, 4]]  # rank 1 of 2; 2 kv heads of 2
    copied = [[12, 16], [2, 4], [2, 4]]  # rank 3 of 4: ranks 2 and 3 keep the same kv head
    hand: list[tuple[str, Args]] = [
        ("one part, one rank", ([[0, 6]], [6], 3, 0, "float32")),
        ("one part, the second rank", ([[3, 6]], [6], 4, 0, "float32")),
        ("gate", (gate_up[1], [8, 8], 3, 0, "float32")),
        ("up", (gate_up[0], [8, 8], 3, 1, "float32")),
        ("up, the second rank", (gate_up[1], [8, 8], 3, 1, "float32")),
        ("q", (qkv, [8, 4, 4], 5, 0, "float32")),
        ("k", (qkv, [8, 4, 4], 5, 1, "float32")),
        ("v", (qkv, [8, 4, 4], 5, 2, "float32")),
        ("a kv head that two ranks keep", (copied, [16, 4, 4], 3, 2, "float32")),
        ("bias", (qkv, [8, 4, 4], 0, 0, "float32")),
        ("bias of v", (qkv, [8, 4, 4], 0, 2, "float32")),
        ("another dtype on disk", (gate_up[0], [8, 8], 2, 1, "float64")),
    ]
    rng = random.Random(502)
    for _ in range(RANDOM_CASES):
        ranks = rng.choice((1, 2, 4))
        parts = rng.randint(1, 3)
        sizes = [ranks * rng.randint(1, 5) for _ in range(parts)]
        rank = rng.randrange(ranks)
        slices = [[rank * s // ranks, (rank + 1) * s // ranks] for s in sizes]
        args = (slices, sizes, rng.choice((0, 1, 3)), rng.randrange(parts), "float32")
        hand.append(("random shards", args))
    return _distinct(hand, _rows_situation)


def _rows_situation(args: Args) -> str:
    slices, _, columns, part, dtype = args
    shown = ", ".join(f"[{a}, {b})" for a, b in slices)
    kind = "bias" if not columns else "weight"
    other = f", {dtype} on disk" if dtype != "float32" else ""
    return f"part {part} of a {kind} with this rank's rows {shown}{other}"


def _distinct(hand: list[tuple[str, Args]], situation: Callable[[Args], str]) -> list[Case]:
    seen: dict[str, Case] = {}
    for check, args in hand:
        seen.setdefault(repr(args), Case(check, situation(args), args))
    return list(seen.values())


def observe_rows(function: Callable[..., Any], args: Args) -> dict[str, Any]:
    """The target afterwards, and how many numbers were read."""
    import torch

    slices, sizes, columns, part, dtype = args
    shape = [sum(b - a for a, b in slices), *([columns] if columns else [])]
    memory = torch.full(shape, _UNTOUCHED)  # the layer's own: what replaces it does not count
    size = (sizes[part], columns) if columns else (sizes[part],)
    source, cuts = on_disk(size, part, dtype), [slice(a, b) for a, b in slices]
    fits = True
    try:
        function(memory.view_as(memory), source, cuts, part)
    except RuntimeError as error:
        if "size" not in str(error):
            raise
        fits = False
    changed = cuts != [slice(a, b) for a, b in slices]
    return {"target": memory.tolist(), "read": source.read, "changed": changed, "fits": fits}


def compare_rows(case: Case, expected: Any, got: Any) -> Difference | None:
    """The first row of the target that holds something else, then what was read too much."""
    if got["changed"]:
        return Difference("your function changed `slices`, which the layer needs again")
    if not got["fits"]:
        return Difference(_where(case))
    for row, (wanted, given) in enumerate(zip(expected["target"], got["target"], strict=True)):
        if wanted != given:
            return Difference(
                f"row {row} of target should hold {_row_name(wanted)}, it holds "
                f"{_row_name(given)}{_why_row(case, wanted, given)}"
            )
    return _too_much(expected["read"], got["read"], "source[slices[part]]")


def _where(case: Case) -> str:
    """Where the part's rows belong, when torch has refused another place."""
    slices, _, _, part, _ = case.args
    lengths = [stop - start for start, stop in slices]
    start = sum(lengths[:part])
    return (
        f"torch says that the sizes do not fit: this rank has {lengths[part]} rows of part {part}, "
        f"and they belong to rows {start} to {start + lengths[part] - 1} of target's {sum(lengths)}"
    )


def _row_name(row: Any) -> str:
    first = row[0] if isinstance(row, list) else row
    if first == _UNTOUCHED:
        return "what it held before"
    if not 1000 <= first < 1e6:
        return "numbers that are not on disk"
    return f"row {int(first) % 1000} of part {int(first) // 1000 - 1}"


def _why_row(case: Case, wanted: Any, given: Any) -> str:
    slices, _, _, part, _ = case.args
    names = _row_name(wanted), _row_name(given)
    if names[1] == "what it held before":
        return ": write into target itself (copy_)"
    if names[0] == "what it held before":
        before = "part 0" if part == 1 else f"parts 0 to {part - 1}"
        return f": part {part} lies behind the rows of {before}" if part else ""
    if names[0] == names[1]:
        return " with its columns in another place"
    return f": this rank's rows are [{slices[part][0]}, {slices[part][1]})"


def _too_much(needed: int, read: int, how: str) -> Difference | None:
    if read <= needed:
        return None
    return Difference(
        f"the target is right, but you read {read} numbers from disk for the {needed} that this "
        f"rank keeps: index the source itself, {how}"
    )


def columns_cases() -> list[Case]:
    """(rows, columns or 0 for a bias, this rank's columns)."""
    hand: list[tuple[str, Args]] = [
        ("weight, one rank", (3, 4, [0, 4])),
        ("weight, the first of two", (3, 8, [0, 4])),
        ("weight, the second of two", (3, 8, [4, 8])),
        ("a square weight", (8, 8, [2, 4])),
        ("bias", (6, 0, [4, 8])),
        ("bias as long as the shard", (4, 0, [4, 8])),
    ]
    rng = random.Random(503)
    for _ in range(RANDOM_CASES // 2):
        ranks, part = rng.choice((2, 4)), rng.randint(1, 6)
        rank = rng.randrange(ranks)
        columns = ranks * part if rng.random() < 0.8 else 0
        hand.append(
            ("random shards", (rng.randint(1, 9), columns, [rank * part, (rank + 1) * part]))
        )
    return _distinct(hand, _columns_situation)


def _columns_situation(args: Args) -> str:
    rows, columns, (start, stop) = args
    kind = f"weight [{rows}, {columns}]" if columns else f"bias [{rows}]"
    return f"a {kind}, this rank's inputs are [{start}, {stop})"


def observe_columns(function: Callable[..., Any], args: Args) -> dict[str, Any]:
    """The target afterwards, and how many numbers were read."""
    import torch

    rows, columns, (start, stop) = args
    memory = torch.full([rows, stop - start] if columns else [rows], _UNTOUCHED)
    source = on_disk((rows, columns) if columns else (rows,), 0, "float32")
    function(memory.view_as(memory), source, slice(start, stop))
    return {"target": memory.tolist(), "read": source.read}


def compare_columns(case: Case, expected: Any, got: Any) -> Difference | None:
    """The first number of the target that is another one, then what was read too much."""
    for row, (wanted, given) in enumerate(zip(expected["target"], got["target"], strict=True)):
        if wanted == given:
            continue
        if not isinstance(wanted, list):
            return Difference(
                f"number {row} of the bias should be number {int(wanted) % 1000} on disk, it is "
                f"{_row_name(given).removesuffix(' of part 0').replace('row', 'number')}: a bias "
                "has no input axis, every rank keeps all of it"
            )
        column = next(i for i, (a, b) in enumerate(zip(wanted, given, strict=True)) if a != b)
        return Difference(
            f"target[{row}, {column}] should be {_number_name(wanted[column])}, it is "
            f"{_number_name(given[column])}"
        )
    return _too_much(expected["read"], got["read"], "source[:, columns]")


def _number_name(value: float) -> str:
    if value == _UNTOUCHED:
        return "what it was before (write into target itself, with copy_)"
    return f"disk[{int(value) % 1000}, {round((value % 1) / _COLUMN)}]"


def draw_rows(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The target's rows: from which row of which part each should come, and comes."""
    from nanoengine.viz.parallel import stacked_rows

    def names(target: Any) -> list[str]:
        return [_row_name(row).replace("what it held before", "") for row in target]

    if expected["target"] == got["target"]:
        return None
    slices, sizes, _, part, _ = args
    return stacked_rows(slices, sizes, part, names(expected["target"]), names(got["target"]))
