"""Small integer work before a decode step, as one launch each instead of a dozen."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import torch
import triton
import triton.language as tl

from nanoengine.kernels.sizes import cdiv


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
    grid = (cdiv(len(token_ids), 256),)
    _resolve[grid](token_ids, last_token, out, len(token_ids), BLOCK=256)
    return out


@triton.jit(do_not_specialize=["batch", "width", "table_stride", "target_stride"])
def _stage(
    id_ptr, position_ptr, slot_ptr, length_ptr, table_ptr, temperature_ptr, noise_ptr, row_ptr,
    to_id_ptr, to_position_ptr, to_slot_ptr, to_length_ptr, to_table_ptr, to_temperature_ptr,
    to_noise_ptr, to_row_ptr, last_token_ptr, batch, width, table_stride, target_stride,
    SAMPLES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row a program; rows from `batch` on are padding: slot -1, length 0, sampled nowhere."""
    row = tl.program_id(0) + tl.arange(0, 1)
    real = row < batch
    token = tl.load(id_ptr + row, mask=real, other=0)
    newest = tl.load(last_token_ptr + tl.maximum(-token - 1, 0), mask=real & (token < 0), other=0)
    tl.store(to_id_ptr + row, tl.where(token < 0, newest, token), mask=real)
    tl.store(to_position_ptr + row, tl.load(position_ptr + row, mask=real, other=0), mask=real)
    tl.store(to_slot_ptr + row, tl.load(slot_ptr + row, mask=real, other=-1))
    tl.store(to_length_ptr + row, tl.load(length_ptr + row, mask=real, other=0))
    if SAMPLES:
        tl.store(to_temperature_ptr + row, tl.load(temperature_ptr + row, mask=real, other=0.0))
        tl.store(to_noise_ptr + row, tl.load(noise_ptr + row, mask=real, other=0.0))
        tl.store(to_row_ptr + row, tl.load(row_ptr + row, mask=real, other=-1))
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        copied = real & (column < width)
        block = tl.load(table_ptr + row * table_stride + column, mask=copied, other=0)
        tl.store(to_table_ptr + row * target_stride + column, block, mask=copied)


def stage_decode(
    source: tuple[torch.Tensor, ...],
    target: tuple[torch.Tensor, ...],
    bucket: int,
    last_token: torch.Tensor,
) -> None:
    """Copy a decode batch into static buffers and make the rows up to `bucket` harmless.

    source, target: input_ids, positions, slot_mapping, context_lens, block_tables and, where the
    sampling is captured too, temperatures, noise, rows. Placeholders among the ids are resolved as
    `resolve_placeholders` does it.

    No programmatic launch here, and a graph's launch has none to what comes before it: so every
    kernel of the graphs finds the buffers written, above its `wait`, too.

    Reference: `engine.cuda_graph.stage_inputs` and `engine.head_graph.SamplingBuffers.stage`.
    """
    tables, to_tables = source[4], target[4]
    none = () if len(source) > 5 else (None,) * 3
    _stage[(bucket,)](
        *source, *none, *target, *none, last_token, len(source[0]), tables.shape[1],
        tables.stride(0), to_tables.stride(0), SAMPLES=len(source) > 5, BLOCK=64, num_warps=2,
    )  # fmt: skip
