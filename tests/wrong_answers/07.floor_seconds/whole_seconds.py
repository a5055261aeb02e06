# check: equal requests
# words: expected 35.5 s, you gave 35
# why: a floor of whole seconds is none
# passes ordinary: no
import math


def floor_seconds(
    lengths, weight_bytes, kv_bytes_per_token, bytes_per_second, prefill_flops=0.0, flops_per_second=math.inf
):
    steps = max((n - 1 for _, n in lengths), default=0)
    positions = sum(p + j for p, n in lengths for j in range(1, n))
    moved = steps * weight_bytes + positions * kv_bytes_per_token
    return moved // bytes_per_second + prefill_flops / flops_per_second
