# check: several tokens
# words: slot 12|mask the columns
# why: BLOCK columns written where the row has ROW
# passes ordinary: yes
import triton
import triton.language as tl


@triton.jit
def _store(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slot_ptr, k_stride, v_stride,
    ROW: tl.constexpr, BLOCK: tl.constexpr,
):
    token = tl.program_id(0)
    slot = tl.load(slot_ptr + token).to(tl.int64)
    if slot < 0:
        return
    column = tl.arange(0, BLOCK)
    inside = column < ROW
    k = tl.load(k_ptr + token * k_stride + column)
    v = tl.load(v_ptr + token * v_stride + column)
    tl.store(k_cache_ptr + slot * ROW + column, k)
    tl.store(v_cache_ptr + slot * ROW + column, v)


def store_kvcache(k, v, k_cache, v_cache, slot_mapping):
    row = k.shape[1] * k.shape[2]
    _store[(len(k),)](
        k, v, k_cache, v_cache, slot_mapping, k.stride(0), v.stride(0),
        ROW=row, BLOCK=triton.next_power_of_2(row),
    )
