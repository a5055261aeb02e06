# check: one request
# words: expected 2 s|one step fewer
# why: the first token is the prefill's
# passes ordinary: no
import math


def floor_seconds(
    lengths, weight_bytes, kv_bytes_per_token, bytes_per_second, prefill_flops=0.0, flops_per_second=math.inf
):
    steps = max((n for _, n in lengths), default=0)
    positions = sum(p + j for p, n in lengths for j in range(1, n))
    moved = steps * weight_bytes + positions * kv_bytes_per_token
    return moved / bytes_per_second + prefill_flops / flops_per_second
