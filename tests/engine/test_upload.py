"""From integer lists to tensors: every number arrives, and what is no table is refused."""

from typing import Any

import pytest
import torch

from nanoengine.engine.inputs import DecodeInputs, PrefillInputs
from nanoengine.engine.upload import upload_run

CPU = torch.device("cpu")


def decode_lists(block_tables: list[list[int]]) -> DecodeInputs:
    return DecodeInputs([-1, 70_000], [9, 4], [21, 3], [10, 5], block_tables)


def test_a_decode_steps_lists_arrive() -> None:
    tables = [[7, 2, 5], [3, -1, -1]]
    (ids, positions, context), more = upload_run(decode_lists(tables), CPU)
    lengths, block_tables = context.decode_tensors()
    assert (ids.tolist(), positions.tolist()) == ([-1, 70_000], [9, 4])
    assert (context.slot_mapping.tolist(), lengths.tolist()) == ([21, 3], [10, 5])
    assert block_tables.tolist() == tables
    assert {ids.dtype, positions.dtype} == {torch.int64}
    assert {context.slot_mapping.dtype, lengths.dtype, block_tables.dtype} == {torch.int32}
    assert more == []


@pytest.mark.parametrize("tables", [[[7, 2, 5], [3]], [[7], [3, 4, 5]]])
def test_rows_of_unequal_length_are_no_table(tables: list[list[int]]) -> None:
    """Four numbers would fill two rows of two, wrongly."""
    with pytest.raises(ValueError, match="inhomogeneous"):
        upload_run(decode_lists(tables), CPU)


@pytest.mark.parametrize("length", [1, 255, 256, 257, 4096])
@pytest.mark.parametrize("slot", [0, -1, 2**31 - 1])
def test_a_prefill_steps_lists_arrive(length: int, slot: int) -> None:
    """Short and long lists, which are read in different ways; a slot may be nowhere, too."""
    ids = [7 * number for number in range(length)]
    lists = PrefillInputs(ids, ids[::-1], [*ids[1:], slot], [0, length], [0, length], 1, 1, None)
    (got, positions, context), _ = upload_run(lists, CPU)
    assert (got.tolist(), positions.tolist()) == (ids, ids[::-1])
    assert context.slot_mapping.tolist() == [*ids[1:], slot]
    assert (got.dtype, positions.dtype) == (torch.int64, torch.int64)
    assert context.slot_mapping.dtype == torch.int32
    got[0] = 3  # the tensors are the engine's own
    assert ids[0] == 0


def test_a_warm_up_has_no_slots() -> None:
    lists = PrefillInputs([1, 2], [0, 1], [], [0, 2], [0, 2], 2, 2, None)
    (_, _, context), _ = upload_run(lists, CPU)
    assert context.slot_mapping.tolist() == []


def test_many_placeholders_arrive() -> None:
    ids = [-number - 1 for number in range(500)]
    lists = DecodeInputs(ids, ids, ids, ids, [[1]] * 500)
    (got, *_), _ = upload_run(lists, CPU)
    assert got.tolist() == ids


@pytest.mark.parametrize("length", [1, 255, 256, 4096])
@pytest.mark.parametrize(
    ("slot", "error"),
    [(2**31, OverflowError), (2**32 - 1, OverflowError), (-(2**31) - 1, OverflowError),
     (1.5, TypeError), ("1", TypeError)],
)  # fmt: skip
def test_a_number_that_is_no_slot_is_an_error_in_lists_of_any_length(
    length: int, slot: Any, error: type[Exception]
) -> None:
    ids = list(range(length))
    lists = PrefillInputs(ids, ids, [*ids[1:], slot], [0, length], [0, length], 1, 1, None)
    with pytest.raises(error):
        upload_run(lists, CPU)
