"""The one-kernel sum over ranks: here as processes that share memory, on GPUs in tests/gpu."""

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nanoengine.layers.layernorm import rms_norm

if torch.cuda.is_available():
    pytest.skip("on a GPU ranks are GPUs: tests/gpu", allow_module_level=True)

ROWS, EPS, SECONDS = 16, 1e-6, 60
SIZES = [(4, 256), (1, 1000), (8, 1024), (1, 16), (3, 1024), (3, 1024), (16, 2048)]


def _serve(
    rank: int, memory: list[torch.Tensor], host: torch.Tensor, work: Callable[..., Any]
) -> None:
    from nanoengine.kernels.all_reduce import Mailboxes

    torch.set_num_threads(1)
    inboxes = torch.tensor([m.data_ptr() for m in memory])
    flags = inboxes + _flags_at(len(memory))
    counts = torch.zeros(ROWS, dtype=torch.int64)
    work(rank, Mailboxes(rank, inboxes, flags, counts, host[rank]))


def _flags_at(ranks: int) -> int:
    from nanoengine.kernels.all_reduce import ROW_BYTES

    return 2 * ranks * ROWS * ROW_BYTES


def on_ranks(
    ranks: int, work: Callable[..., None], meanwhile: Callable[[torch.Tensor], None] | None = None
) -> list[torch.Tensor]:
    """Run work(rank, mailboxes) in a process each; gives the ranks' memory, inbox and flags.

    meanwhile: called with the ranks' words in the host's memory, [ranks, 2].
    """
    size = _flags_at(ranks) + 8 * ranks * ROWS
    memory = [torch.zeros(size, dtype=torch.uint8).share_memory_() for _ in range(ranks)]
    host = torch.tensor([[0, -1]] * ranks).share_memory_()
    fork = multiprocessing.get_context("fork")  # shared tensors keep their addresses
    processes = [
        fork.Process(target=_serve, args=(rank, memory, host, work)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    if meanwhile is not None:
        meanwhile(host)
    for process in processes:
        process.join(SECONDS)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * ranks
    assert host[:, 1].tolist() == [-1] * ranks  # nobody waits any more
    return memory


def flags_of(memory: torch.Tensor, ranks: int) -> torch.Tensor:
    """[ranks, ROWS]"""
    return memory[_flags_at(ranks) :].view(torch.int64).view(ranks, ROWS)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_rank_gets_the_sum_of_every_step(ranks: int) -> None:
    from nanoengine.kernels.all_reduce import all_reduce

    torch.manual_seed(ranks)
    steps = [torch.randn(ranks, *size).share_memory_() for size in SIZES]
    want = [step.sum(0) for step in steps]

    def work(rank: int, boxes: Any) -> None:
        for step in steps:
            all_reduce(step[rank], boxes, {"PDL": False})

    flags = flags_of(on_ranks(ranks, work)[0], ranks)
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


def test_a_part_stays_in_place_while_the_next_one_comes() -> None:
    """Two halves, in turn: a rank that is still adding up must not find the next sum's part."""
    from nanoengine.kernels.all_reduce import ROW_BYTES, all_reduce

    first, second = (torch.full((2, 1, 64), value).share_memory_() for value in (3.0, 5.0))

    def work(rank: int, boxes: Any) -> None:
        for step in (first, second):
            all_reduce(step[rank], boxes, {"PDL": False})

    memory, _ = on_ranks(2, work)
    inbox = memory[: _flags_at(2)].view(torch.float32).view(2, 2, ROWS, ROW_BYTES // 4)
    assert inbox[:, 1, 0, :64].unique(dim=1).tolist() == [[5.0], [3.0]]  # of rank 1; k = 2 and 1
    assert not inbox[:, 0].any()  # nobody writes into its own


def test_a_rank_that_never_comes_is_named_and_given_up() -> None:
    from nanoengine.kernels.all_reduce import all_reduce

    x = torch.ones(2, 2, 64).share_memory_()

    def work(rank: int, boxes: Any) -> None:
        if rank == 0:
            all_reduce(x[rank], boxes, {"PDL": False})

    def meanwhile(host: torch.Tensor) -> None:
        deadline = time.monotonic() + SECONDS
        while int(host[0, 1]) != 1:  # rank 0 says for whom it waits
            assert time.monotonic() < deadline
            time.sleep(0.01)
        host[0, 0] = 1  # and is told not to

    on_ranks(2, work, meanwhile)
    assert torch.equal(x[0], torch.ones(2, 64))  # its own part, and nothing of the other's
