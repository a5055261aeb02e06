"""From integer lists to tensors: every number arrives, and what is no table is refused."""

import pytest
import torch

from nanoengine.engine.inputs import DecodeInputs
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
