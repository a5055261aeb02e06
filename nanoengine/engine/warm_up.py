"""Runs at start-up, before any request: to measure memory, and to leave nothing to compile."""

from collections.abc import Callable, Iterator

import torch

from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence, whole_prompt
from nanoengine.sampling_params import SamplingParams


def largest_prefill(max_num_batched_tokens: int, max_model_len: int, max_num_seqs: int) -> Batch:
    """A prefill of the largest size, by sequences that own no blocks and write no cache.

    With 16,384 tokens and a max_model_len of 4,096 these are four whole sequences.
    """
    length = min(max_num_batched_tokens, max_model_len)
    count = max(1, min(max_num_batched_tokens // length, max_num_seqs))
    seqs = [_sequence(i, length) for i in range(count)]
    return Batch([whole_prompt(seq) for seq in seqs], is_prefill=True)


def gpu_memory(run: Callable[[], object]) -> tuple[int, int, int, int]:
    """(total, used, peak, current) bytes of the current GPU around `run`.

    Total and used are the driver's, of the whole card; peak and current the allocator's.
    """
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    peak, current = (stats[f"allocated_bytes.all.{what}"] for what in ("peak", "current"))
    return total, total - free, peak, current


def rehearse(
    run: Callable[[Batch], object], budget: int, max_len: int, block_size: int, num_blocks: int
) -> None:
    """Run prefills of many sizes, with and without history, and decode steps, one with a filter.

    Kernels and libraries choose by size, and compile or load what they choose on first use: here,
    and not inside a user's first request. The cache is written at random; nothing is in it yet.
    """
    longest = min(max_len, num_blocks * block_size)
    for size in _sizes(budget):
        for history in (0, block_size):
            length = min(size + history, longest)
            if history < length:
                run(_prefill(max(1, size // length), history, length, block_size))
    for params in (SamplingParams(), SamplingParams(top_k=1)):  # filtered logits are float32
        seq = _sequence(0, min(2, longest))  # a new one: the old one's parameters are remembered
        seq.params, seq.block_table, seq.row = params, [0], 0
        seq.token_ids[-1] = -1  # a placeholder, as in every overlapped step
        end = len(seq)
        run(Batch([ScheduledItem(seq, end - 1, end, emits=True)], is_prefill=False))


def _sizes(budget: int) -> Iterator[int]:
    """Token counts on both sides of the borders at which kernels choose: 1, 2, 20, 40, 80, ..."""
    size = 20
    yield from (1, 2)
    while size < budget:
        yield size
        size *= 2
    yield budget


def _prefill(count: int, history: int, length: int, block_size: int) -> Batch:
    items = []
    for i in range(count):
        seq = _sequence(i, length)
        seq.row, seq.block_table = 0, list(range(-(-length // block_size)))
        seq.num_cached_tokens, seq.num_scheduled_tokens = history, length - history
        items.append(ScheduledItem(seq, history, length, emits=True))
    return Batch(items, is_prefill=True)


def _sequence(index: int, length: int) -> Sequence:
    return Sequence(f"warm-up {index}", [0] * length, SamplingParams(), length)
