"""Two GPUs: NCCL inside graphs gives one GPU's logits; faults are found while the device waits."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpu import sum_probe
from gpu.conftest import prompts

from nanoengine import LLM, SamplingParams
from nanoengine.distributed.launch import launch
from nanoengine.distributed.worker import worker_setup
from nanoengine.errors import EngineError, WorkerError

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
FOUND_WITHIN = 10.0
LENGTHS = [1, 5, 100, 257, 700, 64]
LIMIT = 4e-2  # bfloat16, summed in another order


def run(llm: LLM, count: int = 20) -> tuple[list[list[int]], dict[tuple[str, int], torch.Tensor]]:
    """Greedy tokens, and the logits of every request's every token by its position."""
    records: list[Any] = []
    llm.engine.on_step = records.append
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    outputs = llm.generate(prompts(LENGTHS), params, use_tqdm=False)
    logits = {
        (seq.request_id, end): record.logits[row].float().cpu()
        for record in records
        for row, (seq, _, end, emits) in enumerate(record.batch.items)
        if emits
    }
    return [output.token_ids for output in outputs], logits


OPTIONS = [{}, {"enforce_eager": True}, {"overlap": False}, {"disable_custom_all_reduce": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_logits_as_one_gpu(make_llm: Callable[..., LLM], options: dict[str, Any]) -> None:
    expected, truth = run(make_llm())
    llm = make_llm(tensor_parallel_size=2, **options)
    assert bool(llm.engine.runner.buckets) == ("enforce_eager" not in options)
    by_kernel = llm.engine.runner.group.inbox is not None
    assert by_kernel == ("disable_custom_all_reduce" not in options)
    tokens, logits = run(llm)
    again, more = run(llm)  # now with prefix hits
    for texts, found in ((tokens, logits), (again, more)):
        assert compare(texts, found, expected, truth) > 3 * len(LENGTHS)


def compare(
    texts: list[list[int]],
    found: dict[tuple[str, int], torch.Tensor],
    expected: list[list[int]],
    truth: dict[tuple[str, int], torch.Tensor],
) -> int:
    """Every token's logits up to the first near tie, where two texts may part; how many."""
    compared = 0
    first = min(int(name.rpartition("-")[2]) for name, _ in found)
    for number, (ours, theirs) in enumerate(zip(texts, expected, strict=True)):
        for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            end = LENGTHS[number] + step
            want = truth[f"request-{number}", end]
            got = found[f"request-{first + number}", end]
            assert float((got - want).norm() / want.norm()) < LIMIT
            compared += 1
            if mine != other:
                break
    return compared


def test_a_pool_that_is_measured_is_the_same_on_both(make_llm: Callable[..., LLM]) -> None:
    llm = make_llm(tensor_parallel_size=2, num_kvcache_blocks=None, gpu_memory_utilization=0.3)
    tokens, _ = run(llm)
    assert all(len(ids) == 20 for ids in tokens)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_stops(make_llm: Callable[..., LLM], how: signal.Signals) -> None:
    llm = make_llm(tensor_parallel_size=2)
    run(llm)
    os.kill(llm.engine.runner.workers.peers[0].pid, how)
    began = time.monotonic()
    with pytest.raises(WorkerError, match="rank 1 "):
        run(llm, count=300)
    assert time.monotonic() - began < FOUND_WITHIN
    with pytest.raises(EngineError, match="have ended"):
        run(llm)
    llm.close()
    tokens, _ = run(make_llm(tensor_parallel_size=2))  # both GPUs are usable as before
    assert all(len(ids) == 20 for ids in tokens)


def test_a_worker_that_raises(make_llm: Callable[..., LLM]) -> None:
    with worker_setup("distributed.worker_probe:raise_in_run", message="planted"):
        llm = make_llm(tensor_parallel_size=2, enforce_eager=True)
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"rank 1 .*ValueError: planted"):
        run(llm)
    assert time.monotonic() - began < FOUND_WITHIN


def test_sums_in_one_kernel() -> None:
    sizes = [(1, 1024), (64, 5120), (3, 1000), (256, 5120), (1, 16), (300, 8192), (37, 896)]
    values = [number for size in sizes for number in size]
    workers = launch(2, "gpu.sum_probe:serve", {}, torch.device("cuda"), 7.0, inbox=True)
    group = workers.group
    with workers.supervise():
        assert group.inbox is not None
        small = [group.inbox.fits(size, torch.bfloat16) for size in sizes]
        assert small == [True] * 5 + [False, True]  # the sixth is NCCL's: both meet in one graph
        workers.send(sum_probe.SUM, values)
        found = sum_probe.sums(group, values)
    for index, size in enumerate(sizes):
        want = sum(sum_probe.part(rank, index, *size).float() for rank in (0, 1))
        eager, replayed = found[index], found[len(sizes) + index]
        assert float((eager.float() - want).norm() / want.norm()) < 5e-3
        scaled = sum_probe.REPLAYS * want
        assert float((replayed.float() - scaled).norm() / scaled.norm()) < 5e-3
    workers.close()
