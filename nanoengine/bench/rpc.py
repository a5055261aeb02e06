"""What it costs to tell another rank about a step: `nanoengine bench --rpc`.

A worker process that does nothing with the messages; so only writing, waking and reading count.
Median microseconds a decode step as an engine goes on from one to the next: `encode_us` makes
integers of the batch, `send_us` puts them into shared memory and rings, `answer_us` is from the
ring to the worker's word that it has read them, `decode_us` makes a batch of them again, on the
worker. Rank 0 pays the first two, while the device is busy with the step before. `full_...`: the
same for a step whose sequences are not those of the one before, and which is told in full.
"""

import json
import statistics
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch

from nanoengine import environment
from nanoengine.distributed.group import TPGroup
from nanoengine.distributed.launch import launch
from nanoengine.distributed.rpc import RUN
from nanoengine.distributed.workers import Workers
from nanoengine.engine.block_manager import BlockManager
from nanoengine.engine.scheduler import Scheduler
from nanoengine.engine.sequence import Batch, Sequence
from nanoengine.engine.step_message import BatchReader, BatchWriter
from nanoengine.sampling_params import SamplingParams

BATCHES = (1, 64, 256)
_LENGTH, _BLOCK_SIZE = 641, 256  # the article's requests, half-way through
_BLOCKS = 8  # for a request: more than it comes to need
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
    writer, reader, batches = BatchWriter(), BatchReader(), _batches(size)
    for batch in islice(batches, 2):  # the prefill, and the decode batch that the others go on from
        reader.decode(array("i", writer.encode(batch)))
    short: list[list[float]] = []
    full: list[list[float]] = []
    for batch in islice(batches, _STEPS):
        short.append(_tell(workers, writer.encode, reader, batch))
        full.append(_tell(workers, writer.in_full, reader, batch))
    return {"sequences": size, **_medians("", short), **_medians("full_", full)}


def _tell(
    workers: Workers, write: Callable[[Batch], list[int]], reader: BatchReader, batch: Batch
) -> list[float]:
    """A batch's way to the worker: bytes, then microseconds to encode, send, answer, decode."""
    clock = time.perf_counter
    with workers.supervise():
        began = clock()
        values = write(batch)
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
    return [4 * len(values), *(1e6 * span for span in spans)]


def _medians(form: str, steps: list[list[float]]) -> dict[str, float]:
    names = ("message_bytes", "encode_us", "send_us", "answer_us", "decode_us")
    columns = zip(*steps, strict=True)
    return {
        form + name: round(statistics.median(column), 1)
        for name, column in zip(names, columns, strict=True)
    }


def _batches(size: int) -> Iterator[Batch]:
    """A prefill, then decode batches without end; no two requests get a block in the same step."""
    blocks = BlockManager(size * _BLOCKS, _BLOCK_SIZE, enable_prefix_caching=False)
    scheduler = Scheduler(blocks, size, size * (_LENGTH + size))
    for row in range(size):
        prompt = [0] * (_LENGTH + row)
        scheduler.add(Sequence(f"request-{row}", prompt, SamplingParams(), 10 * _LENGTH))
    while step := scheduler.schedule():
        yield from filter(None, step)
        scheduler.launched(step)
