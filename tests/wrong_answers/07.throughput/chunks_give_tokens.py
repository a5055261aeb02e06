# check: a chunk inside a prompt
# words: one new token for every prefill run
# why: a chunk that ends inside a prompt gives none
# passes ordinary: no
from nanoengine.bench.metrics import Throughput


def throughput(events):
    if not events:
        return Throughput(0.0, 0.0, 0.0)
    busy = {True: 0.0, False: 0.0}
    new = {True: 0, False: 0}
    prompt = 0
    before = events[0].start
    for event in events:
        busy[event.is_prefill] += event.end - max(event.start, before)
        new[event.is_prefill] += max(1, len(event.request_ids))
        if event.is_prefill:
            prompt += event.num_tokens
        before = event.end
    def rate(count, seconds):
        return count / seconds if seconds > 0 else 0.0
    return Throughput(
        rate(new[True] + new[False], before - events[0].start),
        rate(prompt, busy[True]),
        rate(new[False], busy[False]),
    )
