from nanoengine.bench.metrics import Throughput


def throughput(events):
    prefills, decodes, seconds = [], [], {}
    end = None
    for event in events:
        seconds[id(event)] = event.end - (event.start if end is None else max(event.start, end))
        end = event.end
        (prefills if event.is_prefill else decodes).append(event)
    if not events:
        return Throughput(0.0, 0.0, 0.0)
    new = sum(len(event.request_ids) for event in events)
    whole = end - events[0].start
    in_prefill = sum(seconds[id(event)] for event in prefills)
    in_decode = sum(seconds[id(event)] for event in decodes)
    return Throughput(
        output_tok_s=new / whole if whole else 0.0,
        prefill_tok_s=sum(e.num_tokens for e in prefills) / in_prefill if in_prefill else 0.0,
        decode_tok_s=sum(e.num_tokens for e in decodes) / in_decode if in_decode else 0.0,
    )
