"""Lesson 01's contract for slots and block tables: cases, and what a difference means."""

import random
from typing import TYPE_CHECKING, Any

from nanoengine.course.registry import Case
from nanoengine.course.values import Difference, first_difference, show, wrong_kind

if TYPE_CHECKING:
    from nanoengine.viz.style import Picture

RANDOM_CASES = 60
BLOCK_SIZES = (4, 8, 16)
_BLOCKS = 40  # block ids of random cases are below
Args = tuple[Any, ...]


def random_table(rng: random.Random, count: int) -> list[int]:
    """Different block ids in no order."""
    return rng.sample(range(_BLOCKS), count)


# -- slot_mapping ------------------------------------------------------------------------------


def slot_cases() -> list[Case]:
    """From one whole block to random tables; every case differs from its neighbours."""
    hand = [
        ("one block", [3], 0, 4, 4),
        ("several blocks", [7, 2, 5], 4, 10, 4),
        ("starts inside a block", [7, 2, 5], 6, 12, 4),
        ("block 0 in use", [5, 0, 9], 2, 11, 4),
        ("one token", [6, 1, 4], 9, 10, 4),
        ("last place of a block", [6, 1, 4], 7, 8, 4),
        ("no token", [6, 1], 4, 4, 4),
        ("other block sizes", [2, 0, 3], 5, 23, 8),
    ]
    rng = random.Random(101)
    for _ in range(RANDOM_CASES):
        size, blocks = rng.choice(BLOCK_SIZES), rng.randint(1, 6)
        start, end = sorted(rng.sample(range(blocks * size + 1), 2))
        hand.append(("random tables", random_table(rng, blocks), start, end, size))
    return [_slot_case(*case) for case in hand]


def _slot_case(check: str, table: list[int], start: int, end: int, size: int) -> Case:
    covered = f"positions {start} to {end - 1}" if end > start else f"start = end = {start}"
    situation = f"block table {show(table)}, block size {size}, {covered}"
    return Case(check, situation, (table, start, end, size))


def compare_slots(case: Case, expected: Any, got: Any) -> Difference | None:
    """One right slot for each position."""
    table, start, end, size = case.args
    wrong = wrong_kind(got, f"a list of {end - start} slots")
    if wrong:
        return wrong
    index = first_difference(expected, got)
    if index is None:
        return None
    if index >= len(expected) or index >= len(got):
        return Difference(f"expected {len(expected)} slots, one a position, you gave {len(got)}")
    position, given = start + index, got[index]
    hint = ", a float: // divides to whole numbers" if isinstance(given, float) else ""
    return Difference(
        f"position {position} is place {position % size} of the sequence's block "
        f"{position // size}, which is block {table[position // size]} of the cache: expected "
        f"slot {expected[index]}, you gave {show(given)}{hint}"
    )


def draw_slots(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The slot grid with the right slots and the student's."""
    from nanoengine.viz.slots import slot_grid

    table, start, _, size = args
    return slot_grid(table, start, expected, size, got=got)


# -- pad_block_tables --------------------------------------------------------------------------


def table_cases() -> list[Case]:
    """Tables of unlike and like lengths, none, and a sequence that owns no block."""
    hand: list[tuple[str, list[list[int]]]] = [
        ("unlike lengths", [[7, 2, 5], [3]]),
        ("the longest is last", [[4], [0, 6], [8, 1, 9]]),
        ("like lengths", [[4, 1], [0, 3]]),
        ("no tables", []),
        ("a table without blocks", [[], [5, 2]]),
    ]
    rng = random.Random(102)
    for _ in range(RANDOM_CASES):
        lengths = [rng.randint(1, 7) for _ in range(rng.randint(1, 6))]
        hand.append(("random tables", [random_table(rng, n) for n in lengths]))
    return [Case(check, f"block tables {show(tables)}", (tables,)) for check, tables in hand]


def compare_tables(case: Case, expected: Any, got: Any) -> Difference | None:
    """The rows' own blocks must be right; how the rest is filled is a remark."""
    return tables_difference(expected, got, [len(table) for table in case.args[0]])


def tables_difference(expected: Any, got: Any, owned: list[int]) -> Difference | None:
    """Padded tables: `owned[i]` blocks of row i are read, what follows is only filling."""
    wrong = wrong_kind(got, f"a list of {len(expected)} rows")
    if wrong:
        return wrong
    if len(got) != len(expected):
        return Difference(f"expected {len(expected)} rows, one a sequence, you gave {len(got)}")
    for row, given in enumerate(got):
        if not isinstance(given, list):
            return Difference(f"row {row} should be a list, you gave {show(given)}")
        if len(given) != len(got[0]):
            return Difference(
                f"row {row} has {len(given)} entries, row 0 has {len(got[0])}: a tensor needs rows "
                f"of one length, here {len(expected[row])}"
            )
        own = expected[row][: owned[row]]
        if given[: owned[row]] != own:
            return Difference(f"row {row} should begin with {show(own)}, you gave {show(given)}")
    return _filling(expected, got, owned)


def _filling(expected: Any, got: Any, owned: list[int]) -> Difference | None:
    """What is never read: only a remark."""
    for row, given in enumerate(got):
        if len(given) != len(expected[row]):
            return Difference(
                f"row {row} has {len(given)} entries, the longest table has {len(expected[row])}",
                binding=False,
            )
        for column in range(owned[row], len(given)):
            if given[column] != -1:
                return Difference(
                    f"row {row} is filled up with {show(given[column])}, the contract says -1 "
                    "(never read, but -1 shows a mistake at once)",
                    binding=False,
                )
    return None


def draw_tables(args: Args, expected: Any, got: Any) -> "Picture | None":
    """The padded rectangle beside the student's."""
    from nanoengine.viz.tables import block_tables

    return block_tables(expected, [len(table) for table in args[0]], got=got)
