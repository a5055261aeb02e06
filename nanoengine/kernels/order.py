"""Which sequence first: the longest, so that no long one starts when all others are done.

A batch of 256 sequences and 8 kv heads gives attention 2,048 programs, of which about 400 run at
once, in the order of their numbers. One of 2,000 keys takes two thirds of the whole kernel's time:
started last, it would leave the chip idle around it.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import torch
import triton
import triton.language as tl

from nanoengine.kernels.sizes import cdiv, next_power_of_2

_ROWS = 16  # ranked by one program


@triton.jit(do_not_specialize=["rows"])
def _longest_first(length_ptr, order_ptr, rows, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A row's place is the number of rows before it: longer ones, and equal ones of lower number.

    It does not let the next kernel start early: so whatever comes later may read the order above
    its own `wait` (rule 1 of `pdl.py`).
    """
    mine = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    other = tl.arange(0, BLOCK)
    length = tl.load(length_ptr + mine, mask=mine < rows, other=-1)[:, None]
    others = tl.load(length_ptr + other, mask=other < rows, other=-1)[None, :]
    tie = (others == length) & (other[None, :] < mine[:, None])
    place = tl.sum(((others > length) | tie).to(tl.int32), 1)
    tl.store(order_ptr + place, mine, mask=mine < rows)


def longest_first(lengths: torch.Tensor) -> torch.Tensor:
    """[b] int32 lengths -> [b] int32 row numbers by falling length.

    Reference: `torch.argsort(lengths, descending=True, stable=True)`, several launches.
    """
    rows = len(lengths)
    order = torch.empty_like(lengths)
    block = max(512, next_power_of_2(rows))
    _longest_first[(cdiv(rows, _ROWS),)](lengths, order, rows, ROWS=_ROWS, BLOCK=block)
    return order
