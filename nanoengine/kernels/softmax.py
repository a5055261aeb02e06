"""What both attention kernels share: one step of the running softmax, and where a tile lies.

The running softmax (FlashAttention, arXiv 2205.14135; Milakov and Gimelshein, arXiv 1805.02867)
keeps, for each query, the largest score so far `m`, the sum `total` of 2^(score - m), and the
weighted sum of values `acc`. A new tile of keys may raise m; then total and acc are scaled down
to it.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl

LOG2E = 1.4426950408889634  # scores are kept in base 2: exp2 is one instruction


@triton.jit
def attend_tile(q, k, v, visible, m, total, acc, scale_log2, MASKED: tl.constexpr):
    """Take in one tile of keys k and values v, [keys, dim]; visible: [queries or 1, keys]."""
    # "ieee": float32 operands must not be rounded to tf32; other dtypes do not care
    score = tl.dot(q, tl.trans(k), input_precision="ieee")
    if MASKED:
        score = tl.where(visible, score, -1e30)
    # scaled as late as this, scale and subtraction are one instruction a score
    new_m = tl.maximum(m, tl.max(score, 1) * scale_log2)
    shrink = tl.exp2(m - new_m)
    weight = tl.exp2(score * scale_log2 - new_m[:, None])
    total = total * shrink + tl.sum(weight, 1)
    acc = tl.dot(weight.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return new_m, total, acc


@triton.jit
def load_blocks(table_ptr, first, key, end, BLOCK_SIZE: tl.constexpr, BN: tl.constexpr):
    """Block ids of the keys first + [0, BN): one number when the whole tile lies in one block."""
    if BLOCK_SIZE >= BN:
        return tl.load(table_ptr + first // BLOCK_SIZE, mask=first < end, other=0)
    else:  # noqa: RET505  (the compiler drops the other branch only with an else)
        return tl.load(table_ptr + (first + key) // BLOCK_SIZE, mask=first + key < end, other=0)


@triton.jit
def slots_of(blocks, first, key, BLOCK_SIZE: tl.constexpr):
    """Slots of the keys first + [0, BN) in the cache, 64-bit."""
    return blocks.to(tl.int64) * BLOCK_SIZE + (first + key) % BLOCK_SIZE
