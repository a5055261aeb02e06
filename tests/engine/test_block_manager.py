"""Paged KV book-keeping: allocation, sharing, eviction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoengine import SamplingParams
from nanoengine.engine.block_manager import BlockManager
from nanoengine.engine.sequence import Sequence
from nanoengine.errors import EngineError

BLOCK = 4


def seq_of(tokens: list[int]) -> Sequence:
    """A waiting sequence."""
    return Sequence("r", tokens, SamplingParams(), 1000)


def run_prefill(manager: BlockManager, tokens: list[int]) -> Sequence:
    """Allocate a prompt and make its full blocks findable, as after its prefill."""
    seq = seq_of(tokens)
    assert manager.allocate(seq)
    manager.hash_blocks(seq, seq.num_cached_tokens, len(seq))
    return seq


def state(manager: BlockManager) -> tuple[list[int], list[int]]:
    """(reference counts, free blocks)."""
    return [b.ref_count for b in manager.blocks], list(manager.free_block_ids)


@given(st.integers(0, 10_000), st.integers(1, 512))
def test_blocks_for(tokens: int, size: int) -> None:
    blocks = BlockManager(1, size).blocks_for(tokens)
    assert (blocks - 1) * size < tokens <= blocks * size or tokens == blocks == 0


@pytest.mark.parametrize(("length", "blocks"), [(1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_prompt_takes_the_blocks_it_fills(length: int, blocks: int) -> None:
    manager = BlockManager(8, BLOCK)
    seq = seq_of([1] * length)
    assert manager.allocate(seq)
    assert seq.block_table == list(range(blocks))
    assert state(manager) == ([1] * blocks + [0] * (8 - blocks), list(range(blocks, 8)))


@pytest.mark.parametrize("prompt", range(1, 2 * BLOCK + 2))
def test_a_block_is_added_exactly_when_the_last_token_needs_it(prompt: int) -> None:
    """The famous "off by one" that is none: the last token is counted but has no slot yet."""
    manager = BlockManager(16, BLOCK)
    seq = seq_of([1] * prompt)
    manager.allocate(seq)
    for stored in range(prompt, 4 * BLOCK):
        seq.token_ids.append(2)  # sampled; the next step stores it at position `stored`
        assert manager.needs_block(seq) == (stored % BLOCK == 0)
        if manager.needs_block(seq):
            manager.append_block(seq)
        assert len(seq.block_table) == stored // BLOCK + 1


@pytest.mark.parametrize(("length", "hits"), [(4, 0), (7, 1), (8, 1), (9, 2), (12, 2), (13, 3)])
def test_the_last_token_is_never_taken_from_the_cache(length: int, hits: int) -> None:
    manager = BlockManager(16, BLOCK)
    first = run_prefill(manager, list(range(length)))
    second = seq_of(list(range(length)))
    assert manager.allocate(second)
    assert second.block_table[:hits] == first.block_table[:hits]
    assert not set(second.block_table[hits:]) & set(first.block_table)
    assert second.num_cached_tokens == hits * BLOCK < length
    assert [manager.blocks[b].ref_count for b in first.block_table[:hits]] == [2] * hits


def test_a_hit_needs_the_whole_chain() -> None:
    """The same four tokens after another beginning are another block."""
    manager = BlockManager(16, BLOCK)
    run_prefill(manager, [1, 1, 1, 1, 5, 6, 7, 8, 9])
    assert manager.cached_prefix(seq_of([2, 2, 2, 2, 5, 6, 7, 8, 9])) == []
    assert manager.cached_prefix(seq_of([5, 6, 7, 8, 9])) == []


def test_a_hash_collision_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The content decides, not the hash."""
    monkeypatch.setattr(BlockManager, "compute_hash", staticmethod(lambda parent, ids: b"same"))
    manager = BlockManager(16, BLOCK)
    run_prefill(manager, [1, 2, 3, 4, 5])
    assert manager.cached_prefix(seq_of([6, 7, 8, 9, 5])) == []
    assert manager.cached_prefix(seq_of([1, 2, 3, 4, 9])) == [0]


def test_freed_blocks_are_revived_and_the_oldest_is_evicted_first() -> None:
    manager = BlockManager(4, BLOCK)
    old = run_prefill(manager, [1] * 5)
    new = run_prefill(manager, [2] * 5)
    manager.free(old)
    manager.free(new)
    assert state(manager) == ([0] * 4, [1, 0, 3, 2])  # a sequence's tail goes first
    again = seq_of([1] * 5)
    assert manager.allocate(again)
    assert again.block_table == [0, 1]  # the hit, and the block freed longest ago
    other = seq_of([3] * 8)
    assert manager.allocate(other)
    assert other.block_table == [3, 2]
    assert manager.cached_prefix(seq_of([2] * 5)) == []  # evicted, and forgotten
    assert len(manager.hash_to_block_id) == 1


def test_no_room_changes_nothing() -> None:
    """Hits that lie in the free list count as needed blocks, too."""
    manager = BlockManager(3, BLOCK)
    first = run_prefill(manager, [1] * 9)
    manager.free(first)
    before = state(manager), dict(manager.hash_to_block_id)
    big = seq_of([1] * 13)  # two hits and two new ones: four, of three free
    assert not manager.allocate(big)
    assert (state(manager), dict(manager.hash_to_block_id)) == before
    assert not big.block_table
    assert big.num_cached_tokens == 0


def test_shared_blocks_come_free_with_their_last_owner() -> None:
    manager = BlockManager(8, BLOCK)
    seqs = [run_prefill(manager, [1] * 8 + [i]) for i in range(3)]
    assert [manager.blocks[b].ref_count for b in seqs[0].block_table] == [3, 3, 1]
    for left, seq in zip((2, 1, 0), seqs, strict=True):
        manager.free(seq)
        assert [manager.blocks[b].ref_count for b in (0, 1)] == [left, left]
        assert seq.block_table == []
        assert (0 in manager.free_block_ids) == (left == 0)


def test_of_two_equal_blocks_the_first_stays_findable() -> None:
    """Two equal prompts in one step are computed twice; evicting one must not hide the other."""
    manager = BlockManager(6, BLOCK)
    one, two = seq_of([1] * 5), seq_of([1] * 5)
    assert manager.allocate(one)
    assert manager.allocate(two)
    assert not set(one.block_table) & set(two.block_table)
    manager.hash_blocks(one, 0, 5)
    manager.hash_blocks(two, 0, 5)
    manager.free(two)
    filler = seq_of([9] * 16)
    assert manager.allocate(filler)  # takes every free block, two's among them
    assert manager.cached_prefix(seq_of([1] * 5)) == one.block_table[:1]


def test_only_full_blocks_of_the_range_are_hashed() -> None:
    manager = BlockManager(8, BLOCK)
    seq = seq_of(list(range(11)))
    manager.allocate(seq)
    for (start, end), known in {(0, 3): 0, (3, 5): 1, (5, 7): 1, (7, 11): 2}.items():
        manager.hash_blocks(seq, start, end)
        assert len(manager.hash_to_block_id) == known


def test_without_prefix_caching_nothing_is_shared() -> None:
    manager = BlockManager(8, BLOCK, enable_prefix_caching=False)
    run_prefill(manager, [1] * 9)
    assert not manager.hash_to_block_id
    assert manager.cached_prefix(seq_of([1] * 9)) == []


def test_an_empty_pool_says_what_went_wrong() -> None:
    manager = BlockManager(1, BLOCK)
    seq = seq_of([1])
    manager.allocate(seq)
    with pytest.raises(EngineError, match=r"no free KV block.*preempt"):
        manager.append_block(seq)


def test_operations_do_not_look_at_the_whole_pool() -> None:
    """Reviving blocks from the middle of a long free list touches no other entry."""
    manager = BlockManager(50_000, BLOCK)
    seqs = [run_prefill(manager, [i, *range(100)] * 5) for i in range(40)]
    for seq in seqs:
        manager.free(seq)
    looked = 0

    class Counting(type(manager.free_block_ids)):  # type: ignore[misc]
        def __iter__(self) -> object:
            nonlocal looked
            looked += 1
            return super().__iter__()

    manager.free_block_ids = Counting(manager.free_block_ids)
    looked = 0
    for i in range(40):
        assert manager.allocate(seq_of([i, *range(100)] * 5))
    assert looked == 0
