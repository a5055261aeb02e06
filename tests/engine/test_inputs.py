"""The integer lists, against a slow and obvious oracle."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoengine import SamplingParams
from nanoengine.engine.inputs import (
    DecodeInputs,
    PrefillInputs,
    pad_block_tables,
    prepare_decode,
    prepare_prefill,
    slot_mapping,
)
from nanoengine.engine.sequence import Sequence


def make_seq(
    tokens: list[int], cached: int = 0, scheduled: int = 0, table: list[int] | None = None
) -> Sequence:
    """A sequence in the middle of its life."""
    seq = Sequence("r", tokens, SamplingParams(), 1000)
    seq.num_cached_tokens, seq.num_scheduled_tokens = cached, scheduled
    seq.block_table = table or []
    return seq


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Sequence], int]:
    """Sequences with random lengths, chunks and shuffled blocks, and their block size."""
    block_size = draw(st.sampled_from([1, 2, 4, 16]))
    blocks = draw(st.permutations(range(60)))
    seqs = []
    for _ in range(draw(st.integers(1, 5))):
        tokens = draw(st.lists(st.integers(-4, 90), min_size=1, max_size=11))
        cached = draw(st.integers(0, len(tokens) - 1))
        scheduled = draw(st.integers(1, len(tokens) - cached))
        count = -(-len(tokens) // block_size)
        seqs.append(make_seq(tokens, cached, scheduled, blocks[:count]))
        blocks = blocks[count:]
    return seqs, block_size


@given(batches())
def test_prefill_equals_the_oracle(batch: tuple[list[Sequence], int]) -> None:
    seqs, block_size = batch
    want: dict[str, Any] = {"input_ids": [], "positions": [], "slot_mapping": []}
    for seq in seqs:
        for position in range(len(seq.token_ids)):
            first = seq.num_cached_tokens
            if first <= position < first + seq.num_scheduled_tokens:
                block, offset = divmod(position, block_size)
                want["input_ids"].append(seq.token_ids[position])
                want["positions"].append(position)
                want["slot_mapping"].append(seq.block_table[block] * block_size + offset)
    lengths_q = [seq.num_scheduled_tokens for seq in seqs]
    lengths_k = [seq.num_cached_tokens + seq.num_scheduled_tokens for seq in seqs]
    got = prepare_prefill(seqs, block_size)
    assert got == PrefillInputs(
        **want,
        cu_seqlens_q=[sum(lengths_q[:i]) for i in range(len(seqs) + 1)],
        cu_seqlens_k=[sum(lengths_k[:i]) for i in range(len(seqs) + 1)],
        max_seqlen_q=max(lengths_q),
        max_seqlen_k=max(lengths_k),
        block_tables=got.block_tables,
    )
    if any(seq.num_cached_tokens for seq in seqs):
        assert got.block_tables is not None
        for row, seq in zip(got.block_tables, seqs, strict=True):
            padding = [-1] * (len(row) - len(seq.block_table))
            assert row == seq.block_table + padding
    else:
        assert got.block_tables is None


@given(batches())
def test_decode_equals_the_oracle(batch: tuple[list[Sequence], int]) -> None:
    seqs, block_size = batch
    last = [len(seq.token_ids) - 1 for seq in seqs]
    got = prepare_decode(seqs, block_size)
    assert got == DecodeInputs(
        input_ids=[seq.token_ids[-1] for seq in seqs],
        positions=last,
        slot_mapping=[
            seq.block_table[at // block_size] * block_size + at % block_size
            for seq, at in zip(seqs, last, strict=True)
        ],
        context_lens=[at + 1 for at in last],
        block_tables=got.block_tables,
    )
    width = max(len(seq.block_table) for seq in seqs)
    for row, seq in zip(got.block_tables, seqs, strict=True):
        assert row == seq.block_table + [-1] * (width - len(seq.block_table))


@given(batches())
def test_nothing_is_changed(batch: tuple[list[Sequence], int]) -> None:
    seqs, block_size = batch
    before = [(list(s.token_ids), list(s.block_table), s.num_cached_tokens) for s in seqs]
    prefill, decode = prepare_prefill(seqs, block_size), prepare_decode(seqs, block_size)
    for table in [*(prefill.block_tables or []), *decode.block_tables]:
        table.append(99)  # the lists are the caller's own
    assert before == [(s.token_ids, s.block_table, s.num_cached_tokens) for s in seqs]


def test_the_ten_token_example() -> None:
    """Block table [7, 2, 5], block size 4, one block cached: worked out by hand."""
    seq = make_seq(list(range(100, 110)), cached=4, scheduled=6, table=[7, 2, 5])
    assert prepare_prefill([seq], block_size=4) == PrefillInputs(
        input_ids=[104, 105, 106, 107, 108, 109],
        positions=[4, 5, 6, 7, 8, 9],
        slot_mapping=[8, 9, 10, 11, 20, 21],
        cu_seqlens_q=[0, 6],
        cu_seqlens_k=[0, 10],
        max_seqlen_q=6,
        max_seqlen_k=10,
        block_tables=[[7, 2, 5]],
    )


def test_a_chunk_that_ends_inside_a_block() -> None:
    """Keys end with this chunk, not with the prompt: the rest has no K and V yet."""
    seq = make_seq(list(range(10)), cached=2, scheduled=4, table=[7, 2, 5])
    got = prepare_prefill([seq], block_size=4)
    assert got.slot_mapping == [30, 31, 8, 9]
    assert (got.cu_seqlens_q, got.cu_seqlens_k) == ([0, 4], [0, 6])


def test_one_cached_sequence_gives_tables_to_the_whole_batch() -> None:
    fresh = make_seq([1, 2], scheduled=2, table=[0])
    cached = make_seq([3, 4, 5, 6, 7], cached=4, scheduled=1, table=[3, 0])
    assert prepare_prefill([fresh, cached], 4).block_tables == [[0, -1], [3, 0]]
    assert prepare_prefill([fresh], 4).block_tables is None


def test_warm_up_sequences_have_no_slots() -> None:
    got = prepare_prefill([make_seq([0] * 5, scheduled=5), make_seq([0] * 3, scheduled=3)], 4)
    assert got.slot_mapping == []
    assert got.block_tables is None
    assert got.cu_seqlens_q == got.cu_seqlens_k == [0, 5, 8]


def test_decode_reads_only_the_last_token() -> None:
    """A worker of another rank has no token_ids: length and last token must do."""

    class View:
        num_cached_tokens, num_scheduled_tokens = 9, 1
        block_table, last_token = (7, 2, 5), 42

        def __len__(self) -> int:
            return 10

    got = prepare_decode([View()], 4)  # type: ignore[list-item]
    assert (got.input_ids, got.positions, got.slot_mapping) == ([42], [9], [21])


@pytest.mark.parametrize(("start", "end", "slots"), [(0, 4, [28, 29, 30, 31]), (3, 5, [31, 8]),
                                                     (9, 10, [21]), (5, 5, [])])  # fmt: skip
def test_slot_mapping(start: int, end: int, slots: list[int]) -> None:
    assert slot_mapping([7, 2, 5], start, end, block_size=4) == slots


def test_pad_block_tables() -> None:
    assert pad_block_tables([[7, 2, 5], [3], []]) == [[7, 2, 5], [3, -1, -1], [-1, -1, -1]]
    assert pad_block_tables([]) == []
