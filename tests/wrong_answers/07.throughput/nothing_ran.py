# check: nothing ran
# words: IndexError
# why: no events, no first event
# passes ordinary: yes
from nanoengine.bench.metrics import Throughput


def throughput(events):
    busy = {True: 0.0, False: 0.0}
    new = {True: 0, False: 0}
    prompt = 0
    before = events[0].start
    for event in events:
        busy[event.is_prefill] += event.end - max(event.start, before)
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
