import triton
import triton.language as tl


@triton.jit
def _scatter(x_ptr, cache_ptr, slot_ptr, stride, ROW: tl.constexpr, BLOCK: tl.constexpr):
    """K or V alone; a padded row is masked rather than left early."""
    token = tl.program_id(0)
    slot = tl.load(slot_ptr + token).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + token * stride + column, mask=column < ROW)
    # not (column < ROW) & (slot >= 0): Triton 3.9's interpreter cannot `&` a block and a scalar
    wanted = tl.where(slot >= 0, column, ROW) < ROW
    tl.store(cache_ptr + slot * ROW + column, x, mask=wanted)


def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    row = k.shape[1] * k.shape[2]
    for x, cache in ((k, k_cache), (v, v_cache)):
        x = x.contiguous()
        _scatter[(len(x),)](x, cache, slot_mapping, row, row, triton.next_power_of_2(row))
