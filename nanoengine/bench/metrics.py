"""Rates and waiting times from the times of single runs of the model.

Three rates that are easily confused: *output* tokens per second of the whole job (its divisor
contains the prefill), *prefill* tokens per second, and *decode* tokens per second.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from nanoengine.engine.record import StepRecord
from nanoengine.llm import LLM


class RunEvent(NamedTuple):
    """One run of the model, in plain numbers.

    start, end: seconds on one clock; a run may start before the one before it has ended.
    num_tokens: tokens that were computed (a prefill's chunks, or a decode's rows).
    request_ids: the requests that got a new token from this run. A prefill gives each request
    whose prompt it completes its first token; a chunk that ends inside the prompt gives none.
    """

    is_prefill: bool
    start: float
    end: float
    num_tokens: int
    request_ids: tuple[str, ...]


class Throughput(NamedTuple):
    """Tokens per second; 0.0 where no run of that kind took place."""

    output_tok_s: float
    prefill_tok_s: float
    decode_tok_s: float


class Latency(NamedTuple):
    """Seconds, one value a request: until its first token, and a token after that.

    time_per_output_token leaves out requests with a single output token: there is no second.
    """

    time_to_first_token: list[float]
    time_per_output_token: list[float]


def throughput(events: Sequence[RunEvent]) -> Throughput:
    """The three rates of a job, its runs given in order.

    output_tok_s: all new tokens / (last end - first start). prefill_tok_s: prompt tokens / seconds
    in prefill runs. decode_tok_s: the new tokens of decode runs alone / seconds in decode runs. A
    run that starts before the one before it has ended counts only from that end, so overlapping
    runs count no time twice. Without seconds a rate is 0.0.

    A prefill of 100 tokens in 1 s that gives 2 tokens, then 4 decode runs of 2 rows in 0.5 s
    each: 10 tokens in 3 s are 3.3 output tok/s, 100 prefill tok/s, and 4 decode tok/s.
    """
    if not events:
        return Throughput(0.0, 0.0, 0.0)
    busy = {True: 0.0, False: 0.0}
    new = {True: 0, False: 0}
    computed = 0
    before = events[0].start
    for event in events:
        busy[event.is_prefill] += max(0.0, event.end - max(event.start, before))
        new[event.is_prefill] += len(event.request_ids)
        computed += event.num_tokens if event.is_prefill else 0
        before = max(before, event.end)
    return Throughput(
        output_tok_s=_rate(new[True] + new[False], before - events[0].start),
        prefill_tok_s=_rate(computed, busy[True]),
        decode_tok_s=_rate(new[False], busy[False]),
    )


def latency(events: Iterable[RunEvent], submitted: float) -> Latency:
    """Waiting times of every request, all submitted at the same time.

    First token at 1.0 s, last and fifth at 3.0 s, submitted at 0.0: 1.0 s to the first token,
    (3.0 - 1.0) / 4 = 0.5 s for each after it.
    """
    times: dict[str, list[float]] = {}
    for event in events:
        for request_id in event.request_ids:
            times.setdefault(request_id, []).append(event.end)
    return Latency(
        [seen[0] - submitted for seen in times.values()],
        [(seen[-1] - seen[0]) / (len(seen) - 1) for seen in times.values() if len(seen) > 1],
    )


def event_of(record: StepRecord) -> RunEvent:
    """A record's times and counts, without its tensors: a thousand records would fill memory.

    On a CPU a run has ended when its launch returns; on a GPU, when its tokens could be read.
    """
    on_cpu = record.logits is None or record.logits.device.type == "cpu"
    items = record.batch.items
    return RunEvent(
        is_prefill=record.batch.is_prefill,
        start=record.launch_start,
        end=record.launch_end if on_cpu else record.applied,
        num_tokens=sum(item.end - item.start for item in items),
        request_ids=tuple(item.seq.request_id for item in items if item.emits),
    )


@contextmanager
def recorded_events(llm: LLM) -> Iterator[list[RunEvent]]:
    """Inside, every run of the engine adds an event to the list.

    Recording copies the logits of each run, so timed repeats are measured without it.
    """
    events: list[RunEvent] = []
    engine = llm.engine
    before = engine.on_step
    engine.on_step = lambda record: events.append(event_of(record))
    try:
        yield events
    finally:
        engine.on_step = before


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which `percent` of a hundred lie; the only value of one, 0.0 of none.

    >>> percentile([1.0, 2.0, 3.0], 50)
    2.0
    """
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
