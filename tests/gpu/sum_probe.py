"""What the ranks do in the tests of sums over GPUs: the same on each, told by rank 0's message."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from nanoengine.distributed.group import TPGroup

SUM = 1
REPLAYS = 25


def part(rank: int, seed: int, rows: int, columns: int) -> torch.Tensor:
    """A rank's part of the seed's sum: any rank can make them all."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randn(rows, columns, generator=generator).to(torch.bfloat16)


def sums(group: TPGroup, values: list[int]) -> list[torch.Tensor]:
    """Sums of the (rows, columns) in `values`: one by one, then replayed as one graph."""
    sizes = list(zip(values[::2], values[1::2], strict=True))
    parts = [part(group.rank, i, *size).cuda() for i, size in enumerate(sizes)]
    eager = [group.all_reduce(x.clone()) for x in parts]
    buffers = [x.clone() for x in parts]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    group.captured.append({0: graph})
    with torch.cuda.graph(graph):
        replayed = [group.all_reduce(x * 1) for x in buffers]
    for number in range(1, REPLAYS + 1):  # other numbers every time: nothing old may be read
        for buffer, x in zip(buffers, parts, strict=True):
            buffer.copy_(x * number)
        graph.replay()
    torch.cuda.synchronize()
    return [x.cpu() for x in eager + replayed]


def serve(group: TPGroup, args: dict[str, Any]) -> Mapping[int, Callable[..., None]]:
    """A worker's side."""
    return {SUM: lambda values: sums(group, list(values)) and None}
