"""Frames, pieces and acknowledgement, without processes."""

import socket
import threading
import time
from array import array
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoengine.distributed import rpc
from nanoengine.distributed.rpc import EXIT, HEADER, RUN, Message, Receiver, Sender
from nanoengine.distributed.worker import worker_loop
from nanoengine.errors import EngineError

INT32 = st.integers(-(2**31), 2**31 - 1)


def transfer(size: int, values: list[int], number: int = 0) -> tuple[Message, int]:
    """A message through a buffer of `size` bytes, piece by piece, and how many pieces it took."""
    buffer, payload, received = memoryview(bytearray(size)), rpc.pack(values), bytearray()
    start = pieces = 0
    while True:
        start = rpc.write_message(buffer, number, RUN, payload, start)
        pieces += 1
        message = rpc.read_message(buffer, number, received)
        if start == len(payload):
            assert message is not None, "complete when the last piece is read"
            return message, pieces
        assert message is None, "complete before the last piece"


@given(st.lists(INT32, max_size=40), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_any_message_through_any_buffer(values: list[int], room: int, number: int) -> None:
    message, pieces = transfer(HEADER.size + 4 * room, values, number)
    assert message == (RUN, array("i", values))
    assert pieces == max(1, -(-len(values) // room))


@pytest.mark.parametrize("items", [255, 256, 257, 512, 513])
def test_sizes_around_the_buffer(items: int) -> None:
    _, pieces = transfer(HEADER.size + 1024, list(range(items)))
    assert pieces == -(-items // 256)


def test_a_buffer_whose_room_is_no_multiple_of_an_item() -> None:
    message, _ = transfer(HEADER.size + 7, [1, 2, 3])
    assert message.values == array("i", [1, 2, 3])


def test_too_small_a_buffer_is_refused() -> None:
    with pytest.raises(EngineError, match=r"28 bytes|27 bytes"):
        rpc.write_message(memoryview(bytearray(HEADER.size + 3)), 0, RUN, rpc.pack([1]))


def test_a_number_beyond_int32_is_refused() -> None:
    with pytest.raises(EngineError, match="int32"):
        rpc.pack([2**31])


def buffer_with(values: list[int], number: int = 5) -> memoryview:
    buffer = memoryview(bytearray(HEADER.size + 8))
    rpc.write_message(buffer, number, RUN, rpc.pack(values))
    return buffer


@pytest.mark.parametrize("expected", [4, 6])
def test_another_messages_piece_is_refused(expected: int) -> None:
    with pytest.raises(EngineError, match=f"message 5 .* message {expected} "):
        rpc.read_message(buffer_with([1, 2]), expected, bytearray())


def test_a_piece_read_twice_is_refused() -> None:
    buffer, received = buffer_with([1, 2, 3]), bytearray()
    assert rpc.read_message(buffer, 5, received) is None
    with pytest.raises(EngineError, match=r"from byte 0 came where .* byte 8 was due"):
        rpc.read_message(buffer, 5, received)


def test_a_foreign_buffer_is_refused() -> None:
    with pytest.raises(EngineError, match="no message"):
        rpc.read_message(memoryview(bytearray(64)), 0, bytearray())


def test_a_length_beyond_the_buffer_is_refused() -> None:
    buffer = buffer_with([1, 2])
    HEADER.pack_into(buffer, 0, rpc.MAGIC, 5, RUN, 1000, 0, 1000)
    with pytest.raises(EngineError, match="1000 bytes"):
        rpc.read_message(buffer, 5, bytearray())


class SocketReader:
    """Rank 0's end of a socket to a thread that plays the worker."""

    def __init__(self, bell: socket.socket) -> None:
        self.bell = bell

    def wait_idle(self, seconds: float) -> None:
        self.bell.settimeout(seconds)
        assert self.bell.recv(1) == rpc.IDLE

    def ring(self) -> None:
        self.bell.sendall(rpc.RING)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(INT32, max_size=30), max_size=20), st.integers(1, 3))
def test_slow_readers_see_every_message_in_order(sent: list[list[int]], count: int) -> None:
    buffer = memoryview(bytearray(HEADER.size + 40))
    pairs = [socket.socketpair() for _ in range(count)]
    seen: list[list[list[int]]] = [[] for _ in pairs]

    def play(index: int) -> None:
        def on_run(values: "array[int]") -> None:
            time.sleep(0.001 * index)
            seen[index].append(list(values))

        worker_loop(Receiver(buffer, pairs[index][1]).receive, {RUN: on_run})

    threads = [threading.Thread(target=play, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    sender = Sender(buffer, [SocketReader(ours) for ours, _ in pairs], seconds=20)
    for values in sent:
        sender.send(RUN, values)
    sender.send(EXIT)
    for thread, pair in zip(threads, pairs, strict=True):
        thread.join(20)
        assert not thread.is_alive()
        for end in pair:
            end.close()
    assert seen == [sent] * count


def test_numbers_start_again_after_the_last() -> None:
    ours, theirs = socket.socketpair()
    buffer = memoryview(bytearray(HEADER.size + 4))
    sender, receiver = Sender(buffer, [SocketReader(ours)], 5), Receiver(buffer, theirs)
    sender.number = receiver.number = 2**32 - 1
    seen: list[int] = []
    thread = threading.Thread(
        target=worker_loop, args=(receiver.receive, {RUN: seen.extend}), daemon=True
    )
    thread.start()
    for value in (1, 2, 3):
        sender.send(RUN, [value])
    sender.send(EXIT)
    thread.join(5)
    assert (seen, sender.number) == ([1, 2, 3], 3)
    ours.close()
    theirs.close()


def test_receive_ends_when_rank_0_is_gone() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with pytest.raises(EOFError):
        Receiver(memoryview(bytearray(64)), theirs).receive()
    theirs.close()


def scripted(*messages: Message) -> Callable[[], Message]:
    return iter(messages).__next__


def test_loop_runs_until_exit() -> None:
    seen: list[object] = []
    handlers = {RUN: lambda values: seen.append(list(values)), 7: lambda values: seen.append("7")}
    worker_loop(
        scripted(
            Message(RUN, array("i", [1])),
            Message(7, array("i")),
            Message(RUN, array("i", [2])),
            Message(EXIT, array("i")),
            Message(RUN, array("i", [3])),
        ),
        handlers,
    )
    assert seen == [[1], "7", [2]]


def test_loop_refuses_an_unknown_kind() -> None:
    with pytest.raises(EngineError, match="kind 9"):
        worker_loop(scripted(Message(9, array("i"))), {RUN: print})


def test_loop_lets_exceptions_through() -> None:
    def fail(values: "array[int]") -> None:
        raise KeyError("from the handler")

    with pytest.raises(KeyError):
        worker_loop(scripted(Message(RUN, array("i"))), {RUN: fail})
