# check: waiting between runs
# words: decode_tok_s should be 1|waiting before each run
# why: right as long as no run waits for the host
# passes ordinary: no
from nanoengine.bench.metrics import Throughput


def throughput(events):
    def rate(count, seconds):
        return count / seconds if seconds > 0 else 0.0

    busy, before = {True: 0.0, False: 0.0}, events[0].start if events else 0.0
    for event in events:
        busy[event.is_prefill] += event.end - before
        before = event.end
    new = [len(e.request_ids) for e in events if not e.is_prefill]
    first = [len(e.request_ids) for e in events if e.is_prefill]
    prompt = [e.num_tokens for e in events if e.is_prefill]
    whole = before - events[0].start if events else 0.0
    return Throughput(
        rate(sum(first) + sum(new), whole), rate(sum(prompt), busy[True]), rate(sum(new), busy[False])
    )
