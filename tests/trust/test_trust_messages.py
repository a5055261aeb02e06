"""What a worker reads from shared memory: the next message, or one error; never a hang.

nano-vllm unpickles what it finds there (#246, PR #248); vllm #29389 is a reader ahead of memory.
"""

import socket
from array import array
from collections import Counter

import pytest
from fuzz_tools import attempt, examples
from hypothesis import given
from hypothesis import strategies as st

from nanoengine.distributed import rpc
from nanoengine.engine.sequence import Batch, ScheduledItem, Sequence
from nanoengine.engine.step_message import GO_ON, BatchReader, BatchWriter
from nanoengine.errors import EngineError
from nanoengine.sampling_params import SamplingParams

ROOM = 40  # bytes of the buffer behind its header
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 8, -1, -2, 1000, 2**31 - 1, -(2**31)])


def receive(buffer: bytes) -> rpc.Message:
    """What a worker makes of a buffer when its bell rings once, and then rank 0 is gone."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(rpc.RING)
        theirs.shutdown(socket.SHUT_WR)
        return rpc.Receiver(memoryview(bytearray(buffer)), ours).receive()


@st.composite
def frames(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """A buffer with a message of which some bytes are others, and the message's values."""
    values = draw(st.lists(st.integers(-5, 5), max_size=ROOM // 4))
    buffer = bytearray(rpc.HEADER.size + ROOM)
    rpc.write_message(memoryview(buffer), 0, rpc.RUN, rpc.pack(values))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, rpc.HEADER.size - 1) | st.integers(0, len(buffer) - 1))
        buffer[place] = draw(st.sampled_from([0, 1, 3, 255]) | st.integers(0, 255))
    return bytes(buffer)[: draw(st.just(len(buffer)) | st.integers(0, len(buffer)))], values


def test_damaged_frames() -> None:
    seen: Counter[str] = Counter()

    @examples(700)
    @given(frames())
    def check(case: tuple[bytes, list[int]]) -> None:
        buffer, values = case
        try:
            message, error = attempt(lambda: receive(buffer))
        except EOFError:  # an unfinished message, and nobody to finish it
            seen["unfinished"] += 1
            return
        seen["refused" if error else "message"] += 1
        if message is not None and rpc.HEADER.unpack_from(buffer)[3] == 4 * len(values):
            # only a byte of the values themselves can differ
            assert len(message.values) == len(values)

    check()
    assert min(seen[kind] for kind in ("unfinished", "refused", "message")) > 20, seen


def test_random_bytes_are_no_message() -> None:
    @examples(500)
    @given(st.binary(max_size=100))
    def check(buffer: bytes) -> None:
        with pytest.raises((EngineError, EOFError)):
            receive(buffer)

    check()


def test_any_numbers_are_a_batch_or_an_error() -> None:
    """Negative counts once made the reader go round for ever."""
    seen: Counter[bool] = Counter()

    @examples(800)
    @given(st.sampled_from([0, 1]) | NUMBERS, st.lists(NUMBERS, max_size=23))
    def check(kind: int, more: list[int]) -> None:
        batch, error = attempt(lambda: BatchReader().decode(array("i", [kind, *more])))
        seen[error is None] += 1
        if batch is not None:
            for seq, start, end, _ in batch.items:
                assert 0 <= start < end
                assert len(seq) == end
                assert len(seq.tokens) == end - start  # type: ignore[attr-defined]

    check()
    assert seen[False] > 200
    assert seen[True] > 3


def test_one_changed_number_of_a_real_batch() -> None:
    seq = Sequence("a", [5, 6, 7, 8, 9], SamplingParams(), 20)
    seq.block_table, seq.row = [3, 1], 0
    batch = Batch([ScheduledItem(seq, 0, 5, emits=True)], is_prefill=True)
    values = BatchWriter().encode(batch)

    @examples(300)
    @given(st.integers(0, len(values) - 1), NUMBERS)
    def check(place: int, number: int) -> None:
        changed = array("i", values)
        changed[place] = number
        attempt(lambda: BatchReader().decode(changed))
        with pytest.raises(EngineError, match="no sequence at"):
            BatchReader().decode(array("i", values[:-1]))

    check()
    with pytest.raises(EngineError, match="nothing, not even its kind"):
        BatchReader().decode(array("i"))
    told_before = [1, 0, 8, 9, 2, 0, 7]  # row 0 has two blocks that nobody told of
    with pytest.raises(EngineError, match="row 0 has 0 known blocks, not 2"):
        BatchReader().decode(array("i", told_before))


def told_reader() -> BatchReader:
    """A worker that has read a decode batch of three sequences."""
    reader = BatchReader()
    full = [0] + [n for row in range(3) for n in (row, 5 + row, 6 + row, 0, 2, 40, 41 + row, 9)]
    reader.decode(array("i", full))
    return reader


def test_a_short_message_of_any_numbers() -> None:
    """It goes on with what was read before, or is refused, and then nothing has changed."""
    seen: Counter[bool] = Counter()
    right = st.dictionaries(st.integers(0, 2), st.integers(0, 50)).map(
        lambda new: sorted(new.items())
    )
    pairs = right | st.lists(st.tuples(st.integers(0, 2) | NUMBERS, NUMBERS), max_size=3)

    @examples(600)
    @given(pairs, st.integers(0, 9))
    def check(blocks: list[tuple[int, int]], cut: int) -> None:
        values = [GO_ON, *(number for pair in blocks for number in pair)]
        values = values[:-1] if cut == 0 and blocks else values
        reader = told_reader()
        batch, error = attempt(lambda: reader.decode(array("i", values)))
        seen[error is None] += 1
        if batch is None:
            assert "a step's message gives blocks by" in str(error)
            batch, blocks = reader.decode(array("i", [GO_ON])), []
        assert [place for place, _ in blocks] == sorted({place for place, _ in blocks})
        assert all(block >= 0 for _, block in blocks)
        for row, (seq, start, end, _) in enumerate(batch.items):
            assert (seq.row, start, end, len(seq)) == (row, 6 + row, 7 + row, 7 + row)
            assert seq.last_token == -(row + 1)
            assert seq.block_table == [40, 41 + row, *(b for place, b in blocks if place == row)]

    check()
    assert min(seen[kind] for kind in (True, False)) > 100, seen


@pytest.mark.parametrize(
    ("before", "match"),
    [
        ([], "goes on from a decode batch, but none came before"),
        ([[1, 0, 0, 2, 0, 1, 7, 5, 6]], "none came before"),  # a prefill
        ([[0, 0, 1, 2, 0, 1, 7, 5], [1, 1, 0, 1, 0, 1, 8, 5]], "none came before"),
        ([[0, 0, 0, 2, 0, 1, 7, 5, 6]], "none came before"),  # two tokens of a sequence
    ],
)
def test_nothing_to_go_on_from(before: list[list[int]], match: str) -> None:
    reader = BatchReader()
    for values in before:
        reader.decode(array("i", values))
    with pytest.raises(EngineError, match=match):
        reader.decode(array("i", [GO_ON]))


@pytest.mark.parametrize("kind", [-1, 3, 2**31 - 1])
def test_an_unknown_kind_of_step(kind: int) -> None:
    with pytest.raises(EngineError, match=f"is of kind {kind}, not 0, 1 or 2"):
        told_reader().decode(array("i", [kind]))


def test_a_row_without_blocks_keeps_none_of_those_before() -> None:
    batch = told_reader().decode(array("i", [1, 0, 0, 2, 0, 0, 5, 6]))
    assert batch.seqs[0].block_table == []
