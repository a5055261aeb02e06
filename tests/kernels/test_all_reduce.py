"""The one-kernel sum over ranks: here as processes that share memory, on GPUs in tests/gpu."""

import multiprocessing

import pytest
import torch

if torch.cuda.is_available():
    pytest.skip("on a GPU ranks are GPUs: tests/gpu", allow_module_level=True)

ROOM = 1 << 15  # bytes of a sum


def _rank(rank: int, xs: list[list[torch.Tensor]], memory: list[torch.Tensor], programs: int):
    from nanoengine.kernels.all_reduce import all_reduce

    torch.set_num_threads(1)
    ranks = len(memory)
    inboxes = torch.tensor([m.data_ptr() for m in memory])
    counts = torch.zeros(programs, dtype=torch.int64)
    for step in xs:
        all_reduce(
            step[rank], inboxes, inboxes + 2 * ranks * ROOM, counts, rank, ROOM, {"PDL": False}
        )


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.share_memory_()


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_rank_gets_the_sum_of_every_step(ranks: int) -> None:
    from nanoengine.kernels.all_reduce import PART_BYTES

    torch.manual_seed(ranks)
    programs = ROOM // PART_BYTES
    sizes = [(4, 256), (1, 1000), (8, 1024), (1, 16), (3, 1024), (3, 1024), (8, 1024)]
    steps = [[torch.randn(*size) for _ in range(ranks)] for size in sizes]
    want = [torch.stack(step).sum(0) for step in steps]
    xs = [[_shared(x.clone()) for x in step] for step in steps]
    flags_bytes = ranks * programs * 8
    memory = [
        _shared(torch.zeros(2 * ranks * ROOM + flags_bytes, dtype=torch.uint8))
        for _ in range(ranks)
    ]
    fork = multiprocessing.get_context("fork")  # shared tensors keep their addresses
    processes = [
        fork.Process(target=_rank, args=(rank, xs, memory, programs)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * ranks
    for step, expected in zip(xs, want, strict=True):
        for x in step:
            torch.testing.assert_close(x, expected, rtol=1e-6, atol=1e-6)
            assert torch.equal(x, step[0])  # the same bits on every rank
    flags = memory[0][2 * ranks * ROOM :].view(torch.int64).view(ranks, programs)
    assert flags[0].sum() == 0  # nobody signals itself
    assert int(flags[1, 0]) == len(sizes)
