"""What it costs to tell another rank about a step: `nanoengine bench --rpc`.

A worker process that does nothing with the messages; so only writing, waking and reading count.
Median microseconds a step: `encode_us` makes integers of a decode batch, `send_us` puts them into
shared memory and rings, `answer_us` is from the ring to the worker's word that it has read them,
`decode_us` makes a batch of them again, on the worker. Rank 0 pays the first two, while the
device is busy with the step before.
"""

import json
import statistics
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import torch

from nanoengine import environment
from nanoengine.distributed.group import TPGroup
from nanoengine.distributed.launch import Workers, launch
from nanoengine.distributed.rpc import RUN
from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence
from nanoengine.engine.tensor_parallel import BatchReader, BatchWriter
from nanoengine.sampling_params import SamplingParams

BATCHES = (1, 64, 256)
_LENGTH, _BLOCK_SIZE = 641, 256  # the article's requests, half-way through
_STEPS = 300
_SECONDS = 20.0


def serve(group: TPGroup, args: dict[str, Any]) -> Mapping[int, Callable[["array[int]"], None]]:
    """The worker: reads, and does nothing."""
    return {RUN: lambda values: None}


def measure_rpc() -> dict[str, Any]:
    """{"benchmark": "rpc", "runs": [one for each of BATCHES]}; message sizes in bytes."""
    workers = launch(2, f"{__name__}:serve", {}, torch.device("cpu"), _SECONDS)
    try:
        runs = [_measure(workers, size) for size in BATCHES]
    finally:
        workers.close()
    cpu = environment.device_name(torch.device("cpu"))
    return {"benchmark": "rpc", "device": cpu, "steps": _STEPS, "runs": runs}


def main() -> int:
    """Print the table, and as the last line the result as JSON."""
    result = measure_rpc()
    for run in result["runs"]:
        print("  ".join(f"{name} {value:g}" for name, value in run.items()))
    print(json.dumps(result))
    return 0


def _measure(workers: Workers, size: int) -> dict[str, float]:
    batch, writer, reader = _decode_batch(size), BatchWriter(), BatchReader()
    reader.decode(array("i", writer.encode(batch)))  # from now on the blocks are known
    times: dict[str, list[float]] = {"encode": [], "send": [], "answer": [], "decode": []}
    values: list[int] = []
    clock = time.perf_counter
    for _ in range(_STEPS):
        with workers.supervise():
            began = clock()
            values = writer.encode(batch)
            encoded = clock()
            workers.send(RUN, values)
            sent = clock()
            for peer in workers.peers:
                peer.wait_idle(_SECONDS)
            answered = clock()
        received = array("i", values)
        read = clock()
        reader.decode(received)
        spans = (encoded - began, sent - encoded, answered - sent, clock() - read)
        for name, span in zip(times, spans, strict=True):
            times[name].append(span)
    medians = {f"{name}_us": round(1e6 * statistics.median(t), 1) for name, t in times.items()}
    return {"sequences": size, "message_bytes": 4 * len(values), **medians}


def _decode_batch(size: int) -> Batch:
    items = []
    for row in range(size):
        seq = Sequence(f"request-{row}", [0] * _LENGTH, SamplingParams(), 2 * _LENGTH)
        seq.row, seq.token_ids[-1] = row, -(row + 1)
        seq.block_table = [row] * -(-_LENGTH // _BLOCK_SIZE)
        items.append(ScheduledItem(seq, _LENGTH - 1, _LENGTH, emits=True))
    return Batch(items, is_prefill=False)
