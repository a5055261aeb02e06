"""The one-kernel sum over ranks: here as processes that share memory, on GPUs in tests/gpu."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nanoengine.layers.layernorm import rms_norm

if torch.cuda.is_available():
    pytest.skip("on a GPU ranks are GPUs: tests/gpu", allow_module_level=True)

ROWS, EPS, SECONDS = 16, 1e-6, 60
STOP = 0
SIZES = [(4, 256), (1, 1000), (8, 1024), (1, 16), (3, 1024), (3, 1024), (16, 2048)]


def _serve(rank: int, memory: list[torch.Tensor], work: Callable[..., Any]) -> None:
    from nanoengine.kernels.all_reduce import Mailboxes

    torch.set_num_threads(1)
    inboxes = torch.tensor([m.data_ptr() for m in memory])
    flags = inboxes + _flags_at(len(memory))
    counts, host = torch.zeros(ROWS, dtype=torch.int64), torch.tensor([STOP, -1])
    work(rank, Mailboxes(rank, inboxes, flags, counts, host))


def _flags_at(ranks: int) -> int:
    from nanoengine.kernels.all_reduce import ROW_BYTES

    return 2 * ranks * ROWS * ROW_BYTES


def on_ranks(ranks: int, work: Callable[..., None]) -> torch.Tensor:
    """Run work(rank, mailboxes) in a process each; gives the flags of rank 0, [ranks, ROWS]."""
    size = _flags_at(ranks) + 8 * ranks * ROWS
    memory = [torch.zeros(size, dtype=torch.uint8).share_memory_() for _ in range(ranks)]
    fork = multiprocessing.get_context("fork")  # shared tensors keep their addresses
    processes = [fork.Process(target=_serve, args=(rank, memory, work)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * ranks
    return memory[0][_flags_at(ranks) :].view(torch.int64).view(ranks, ROWS)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_rank_gets_the_sum_of_every_step(ranks: int) -> None:
    from nanoengine.kernels.all_reduce import all_reduce

    torch.manual_seed(ranks)
    steps = [torch.randn(ranks, *size).share_memory_() for size in SIZES]
    want = [step.sum(0) for step in steps]

    def work(rank: int, boxes: Any) -> None:
        for step in steps:
            all_reduce(step[rank], boxes, {"PDL": False})

    flags = on_ranks(ranks, work)
    for step, expected in zip(steps, want, strict=True):
        for x in step:
            torch.testing.assert_close(x, expected, rtol=1e-6, atol=1e-6)
            assert torch.equal(x, step[0])  # the same bits on every rank
    assert flags[0].tolist() == [0] * ROWS  # nobody signals itself
    counts = [sum(rows > row for rows, _ in SIZES) for row in range(ROWS)]
    assert flags[1:].tolist() == [counts] * (ranks - 1)


@pytest.mark.parametrize(("ranks", "parts"), [(2, 0), (2, 3), (3, 2)])
def test_the_norm_behind_the_sum(ranks: int, parts: int) -> None:
    from nanoengine.kernels.all_reduce import all_reduce_add_norm

    torch.manual_seed(parts)
    steps = []
    for rows, size in SIZES:
        x = torch.randn(ranks, parts, rows, size) if parts else torch.randn(ranks, rows, size)
        gain = torch.rand(size) + 0.5
        steps.append((x, torch.randn(rows, size), gain, torch.zeros(ranks, 2, rows, size)))
    for *_, found in steps:
        found.share_memory_()

    def work(rank: int, boxes: Any) -> None:
        for x, residual, gain, found in steps:
            result = all_reduce_add_norm(x[rank], residual, gain, EPS, boxes, {"PDL": False})
            found[rank].copy_(torch.stack(result))

    on_ranks(ranks, work)
    for x, residual, gain, found in steps:
        total = residual + (x.sum((0, 1)) if parts else x.sum(0))
        want = torch.stack((rms_norm(total, gain, EPS), total))
        for rank in range(ranks):
            torch.testing.assert_close(found[rank], want, rtol=1e-5, atol=1e-5)
            assert torch.equal(found[rank], found[0])


def test_stop_ends_the_waiting_for_a_rank_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    from nanoengine.kernels.all_reduce import all_reduce

    monkeypatch.setitem(globals(), "STOP", 1)
    x = torch.ones(2, 2, 64).share_memory_()

    def work(rank: int, boxes: Any) -> None:
        if rank == 0:
            all_reduce(x[rank], boxes, {"PDL": False})

    on_ranks(2, work)
    assert torch.equal(x[0], torch.ones(2, 64))  # its own part, and nothing of the other's
