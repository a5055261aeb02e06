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
from nanoengine.engine.tensor_parallel import BatchReader, BatchWriter
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
    @given(st.lists(NUMBERS, max_size=24))
    def check(values: list[int]) -> None:
        batch, error = attempt(lambda: BatchReader().decode(array("i", values)))
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
