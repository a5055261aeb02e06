import math


def floor_seconds(lengths, weight_bytes, kv_bytes_per_token, bytes_per_second,
                  prefill_flops=0.0, flops_per_second=math.inf):
    longest = 1
    positions = 0
    for prompt, output in lengths:
        longest = max(longest, output)
        positions += (output - 1) * (2 * prompt + output) / 2
    decode = ((longest - 1) * weight_bytes + positions * kv_bytes_per_token) / bytes_per_second
    return decode if not prefill_flops else decode + prefill_flops / flops_per_second
