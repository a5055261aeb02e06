import math


def floor_seconds(lengths, weight_bytes, kv_bytes_per_token, bytes_per_second,
                  prefill_flops=0.0, flops_per_second=math.inf):
    seconds = prefill_flops / flops_per_second
    step = 1
    while True:
        reading = [prompt + step for prompt, output in lengths if output > step]
        if not reading:
            return seconds
        seconds += (weight_bytes + kv_bytes_per_token * sum(reading)) / bytes_per_second
        step += 1
