# check: one request
# words: expected 2 s|one token more
# why: each step adds a token to read
# passes ordinary: no
import math


def floor_seconds(
    lengths, weight_bytes, kv_bytes_per_token, bytes_per_second, prefill_flops=0.0, flops_per_second=math.inf
):
    steps = max((n - 1 for _, n in lengths), default=0)
    positions = sum(p * (n - 1) for p, n in lengths)
    moved = steps * weight_bytes + positions * kv_bytes_per_token
    return moved / bytes_per_second + prefill_flops / flops_per_second
