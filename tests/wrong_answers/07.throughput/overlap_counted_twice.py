# check: overlapping runs
# words: decode_tok_s should be 1|overlaps count twice
# why: launch to end: with overlap half of it is waiting for the run before
# passes ordinary: yes
from nanoengine.bench.metrics import Throughput


def throughput(events):
    if not events:
        return Throughput(0.0, 0.0, 0.0)
    busy = {True: 0.0, False: 0.0}
    new = {True: 0, False: 0}
    prompt = 0
    before = events[0].start
    for event in events:
        busy[event.is_prefill] += event.end - event.start
        new[event.is_prefill] += len(event.request_ids)
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
