from nanoengine.bench.metrics import Throughput


def throughput(events):
    totals = {"new": 0, "prompt": 0, "rows": 0, "prefill": 0.0, "decode": 0.0}
    for i in range(len(events)):
        is_prefill, start, end, tokens, ids = events[i]
        if i > 0 and events[i - 1].end > start:
            start = events[i - 1].end
        totals["new"] += len(ids)
        totals["prompt" if is_prefill else "rows"] += tokens
        totals["prefill" if is_prefill else "decode"] += end - start

    def per_second(count, seconds):
        try:
            return count / seconds
        except ZeroDivisionError:
            return 0.0

    whole = events[-1].end - events[0].start if events else 0.0
    return Throughput(
        per_second(totals["new"], whole),
        per_second(totals["prompt"], totals["prefill"]),
        per_second(totals["rows"], totals["decode"]),
    )
