"""A prompt's blocks are hashed while the device computes, and findable only once it has."""

from pathlib import Path

import pytest
from fake_runner import FakeRunner, Handle, fake_engine

from nanoengine import SamplingParams
from nanoengine.engine.block_manager import BlockManager
from nanoengine.engine.sequence import Sequence

BLOCK = 4


def chain(tokens: list[int]) -> list[bytes]:
    """The hashes of all full blocks of these tokens."""
    hashes: list[bytes] = []
    for start in range(0, len(tokens) - len(tokens) % BLOCK, BLOCK):
        parent = hashes[-1] if hashes else b""
        hashes.append(BlockManager.compute_hash(parent, tokens[start : start + BLOCK]))
    return hashes


@pytest.mark.parametrize("end", [0, 3, 4, 7, 8, 11])
def test_full_blocks_are_hashed_but_not_findable(end: int) -> None:
    manager = BlockManager(8, BLOCK)
    seq = Sequence("a", list(range(11)), SamplingParams(), 100)
    assert manager.allocate(seq)
    seq.block_hashes.clear()  # allocate looked for the first blocks
    manager.hash_ahead(seq, end)
    assert seq.block_hashes == chain(seq.token_ids[:end])
    assert not manager.hash_to_block_id


def test_without_prefix_caching_nothing_is_hashed() -> None:
    manager = BlockManager(8, BLOCK, enable_prefix_caching=False)
    seq = Sequence("a", list(range(11)), SamplingParams(), 100)
    manager.hash_ahead(seq, 11)
    assert seq.block_hashes == []


def test_a_placeholder_cannot_be_hashed() -> None:
    with pytest.raises(OverflowError):
        BlockManager.compute_hash(b"", [1, 2, 3, -1])


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("budget", [6, 64])
def test_hashes_are_there_before_the_tokens_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlap: bool, budget: int
) -> None:
    """Also those of a chunk: at each read, the blocks that its run filled."""
    engine = fake_engine(tmp_path, overlap=overlap, max_num_batched_tokens=budget)
    runner = engine.runner
    assert isinstance(runner, FakeRunner)
    prompts = [list(range(1, 10)) * 2, [3] * 11, [5] * 3]
    filled: list[int] = []
    read = Handle.tolist

    def checked(handle: Handle) -> list[int]:
        batch = runner.runs[handle.run]
        for seq, start, end, _ in batch.items if batch.is_prefill else ():
            assert len(seq.block_hashes) >= end // BLOCK
            filled.append(end // BLOCK - start // BLOCK)
        return read(handle)

    monkeypatch.setattr(Handle, "tolist", checked)
    for prompt in prompts:
        engine.add_request([token % 10 for token in prompt], SamplingParams(max_tokens=2))
    while engine.has_unfinished:
        engine.step()
    assert sum(filled) == 4 + 2 + 0


@pytest.mark.parametrize("overlap", [False, True])
def test_tokens_in_flight_are_hashed_once_they_are_known(tmp_path: Path, overlap: bool) -> None:
    """A run of decode steps through several blocks, of whose last token none is known at launch."""
    engine = fake_engine(tmp_path, overlap=overlap)
    name = engine.add_request([1] * 6, SamplingParams(max_tokens=20, ignore_eos=True))
    seq, output = engine.requests[name].seq, engine.output(name)
    lengths = set()
    while engine.has_unfinished:
        engine.step()
        lengths.add(len(seq.block_hashes))
        known = output.prompt_token_ids + output.token_ids
        assert len(seq.block_hashes) * BLOCK <= len(known)
        assert seq.block_hashes == chain(known)[: len(seq.block_hashes)]
    assert lengths == {1, 2, 3, 4, 5, 6}
