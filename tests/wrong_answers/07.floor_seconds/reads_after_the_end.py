# check: requests that end early
# words: a request that has ended reads no more
# why: right as long as all outputs are equal
# passes ordinary: yes
import math


def floor_seconds(
    lengths, weight_bytes, kv_bytes_per_token, bytes_per_second, prefill_flops=0.0, flops_per_second=math.inf
):
    steps = max((n for _, n in lengths), default=1) - 1
    positions = sum(p + j for p, _ in lengths for j in range(1, steps + 1))
    moved = steps * weight_bytes + positions * kv_bytes_per_token
    return moved / bytes_per_second + prefill_flops / flops_per_second
