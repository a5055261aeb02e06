"""Sequences to integer lists: what the model and the operators get to see of a step.

Lists in, lists out, no tensors: everything here can be computed by hand and runs anywhere.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol


class SequenceView(Protocol):
    """What the functions below read of a sequence (a worker of another rank knows no more)."""

    num_cached_tokens: int
    num_scheduled_tokens: int
    block_table: list[int]

    @property
    def last_token(self) -> int:
        """Newest token id."""
        ...

    def __len__(self) -> int:
        """Tokens so far."""
        ...

    def __getitem__(self, index: slice, /) -> list[int]:
        """Token ids by position; needed for prefill only."""
        ...


@dataclass(slots=True)
class PrefillInputs:
    """Chunks of several sequences, packed end to end; n tokens of b sequences."""

    input_ids: list[int]
    positions: list[int]
    slot_mapping: list[int]
    cu_seqlens_q: list[int]
    cu_seqlens_k: list[int]
    max_seqlen_q: int
    max_seqlen_k: int
    block_tables: list[list[int]] | None


@dataclass(slots=True)
class DecodeInputs:
    """One token of each of b sequences."""

    input_ids: list[int]
    positions: list[int]
    slot_mapping: list[int]
    context_lens: list[int]
    block_tables: list[list[int]]


def slot_mapping(block_table: SequenceOf[int], start: int, end: int, block_size: int) -> list[int]:
    """KV-cache slots of the tokens at positions [start, end): block * block_size + offset.

    >>> slot_mapping([7, 2, 5], start=4, end=10, block_size=4)
    [8, 9, 10, 11, 20, 21]
    """
    # A block at a time, for within one slots follow each other like positions: the 16,384 tokens of
    # a large prefill one by one take a millisecond, while the GPU waits.
    slots: list[int] = []
    position = start
    while position < end:
        first = block_table[position // block_size] * block_size + position % block_size
        count = min(end - position, block_size - position % block_size)  # up to the block's end
        slots += range(first, first + count)
        position += count
    return slots


def pad_block_tables(block_tables: SequenceOf[SequenceOf[int]]) -> list[list[int]]:
    """Make the tables equally long, padding on the right with -1.

    >>> pad_block_tables([[7, 2, 5], [3]])
    [[7, 2, 5], [3, -1, -1]]
    """
    width = max((len(table) for table in block_tables), default=0)
    return [[*table, *[-1] * (width - len(table))] for table in block_tables]


def prepare_prefill(seqs: SequenceOf[SequenceView], block_size: int) -> PrefillInputs:
    """Pack each sequence's scheduled chunk, tokens [cached, cached + scheduled), end to end.

    Positions go on from the cached tokens. Queries are this step's tokens; keys are everything
    up to the end of *this* chunk, so cu_seqlens_k grows by `end`. Block tables are needed as soon
    as any sequence has history to read. A warm-up sequence has no blocks and gets no slots.

    A 10-token sequence with block table [7, 2, 5], block size 4 and one cached block gives
    positions 4..9, slots [8, 9, 10, 11, 20, 21], cu_seqlens_q [0, 6] and cu_seqlens_k [0, 10].
    """
    input_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    cu_seqlens_q, cu_seqlens_k = [0], [0]
    max_seqlen_q = max_seqlen_k = 0
    for seq in seqs:
        start = seq.num_cached_tokens
        end = start + seq.num_scheduled_tokens
        input_ids += seq[start:end]
        positions += range(start, end)
        if seq.block_table:
            slots += slot_mapping(seq.block_table, start, end, block_size)
        cu_seqlens_q.append(cu_seqlens_q[-1] + end - start)
        cu_seqlens_k.append(cu_seqlens_k[-1] + end)
        max_seqlen_q = max(max_seqlen_q, end - start)
        max_seqlen_k = max(max_seqlen_k, end)
    has_history = cu_seqlens_k[-1] > cu_seqlens_q[-1]
    return PrefillInputs(
        input_ids=input_ids,
        positions=positions,
        slot_mapping=slots,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        block_tables=pad_block_tables([seq.block_table for seq in seqs]) if has_history else None,
    )


def prepare_decode(seqs: SequenceOf[SequenceView], block_size: int) -> DecodeInputs:
    """Feed each sequence's last token, which is counted in its length but not cached yet.

    So the position is len - 1 and the context length, the new token included, is len: the kernel
    writes the token's K and V first and then reads len tokens. Two sequences of 10 and 5 tokens
    give positions [9, 4] and context_lens [10, 5].
    """
    lengths = [len(seq) for seq in seqs]
    return DecodeInputs(
        input_ids=[seq.last_token for seq in seqs],
        positions=[length - 1 for length in lengths],
        slot_mapping=[
            slot_mapping(seq.block_table, length - 1, length, block_size)[0]
            for seq, length in zip(seqs, lengths, strict=True)
        ],
        context_lens=lengths,
        block_tables=pad_block_tables([seq.block_table for seq in seqs]),
    )
