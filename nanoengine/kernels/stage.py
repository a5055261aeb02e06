"""Small integer work before a decode step, as one launch each instead of a dozen."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["count"])
def _resolve(id_ptr, last_token_ptr, out_ptr, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(id_ptr + i, mask=i < count, other=0)
    row = tl.maximum(-token - 1, 0)
    newest = tl.load(last_token_ptr + row, mask=(i < count) & (token < 0), other=0)
    tl.store(out_ptr + i, tl.where(token < 0, newest, token), mask=i < count)


def resolve_placeholders(token_ids: torch.Tensor, last_token: torch.Tensor) -> torch.Tensor:
    """[n] int64 ids; -(row + 1) becomes last_token[row], the newest token of that row.

    Reference: `torch.where(ids < 0, last_token[(-ids - 1).clamp(min=0)], ids)`.
    """
    out = torch.empty_like(token_ids)
    grid = (triton.cdiv(len(token_ids), 256),)
    _resolve[grid](token_ids, last_token, out, len(token_ids), BLOCK=256)
    return out


@triton.jit(do_not_specialize=["batch", "width", "table_stride", "target_stride"])
def _stage(
    id_ptr, position_ptr, slot_ptr, length_ptr, table_ptr,
    to_id_ptr, to_position_ptr, to_slot_ptr, to_length_ptr, to_table_ptr,
    batch, width, table_stride, target_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row a program; rows from `batch` on are padding: slot -1 and length 0."""
    row = tl.program_id(0) + tl.arange(0, 1)
    real = row < batch
    tl.store(to_id_ptr + row, tl.load(id_ptr + row, mask=real, other=0), mask=real)
    tl.store(to_position_ptr + row, tl.load(position_ptr + row, mask=real, other=0), mask=real)
    tl.store(to_slot_ptr + row, tl.load(slot_ptr + row, mask=real, other=-1))
    tl.store(to_length_ptr + row, tl.load(length_ptr + row, mask=real, other=0))
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        copied = real & (column < width)
        block = tl.load(table_ptr + row * table_stride + column, mask=copied, other=0)
        tl.store(to_table_ptr + row * target_stride + column, block, mask=copied)


def stage_decode(
    source: tuple[torch.Tensor, ...], target: tuple[torch.Tensor, ...], bucket: int
) -> None:
    """Copy a decode batch into static buffers and make the rows up to `bucket` harmless.

    source, target: input_ids, positions, slot_mapping, context_lens, block_tables.
    Reference: `engine.cuda_graph.stage_inputs`.
    """
    tables, to_tables = source[-1], target[-1]
    _stage[(bucket,)](
        *source, *target, len(source[0]), tables.shape[1], tables.stride(0), to_tables.stride(0),
        BLOCK=64, num_warps=2,
    )  # fmt: skip
