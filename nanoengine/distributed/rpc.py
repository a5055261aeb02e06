"""How rank 0 tells the other ranks what to run: framed messages through shared memory.

One buffer that all ranks of a host map, written by rank 0 and read by the others. What is in it
is numbers: a fixed header, then int32 values; nothing is ever unpickled. A message longer than
the buffer travels in pieces. A socket a worker carries single bytes: "there is a piece" down,
"I am done with it and with all before" up. Rank 0 writes only when every worker has said so, so
no call can overwrite one that is not read yet.
"""

import socket
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from nanoengine.errors import EngineError

MAGIC = int.from_bytes(b"nano", "little")
HEADER = struct.Struct("<IIiIII")
BUFFER_BYTES = 1 << 20
EXIT, RUN = 0, 1  # kinds of messages
RING = b"!"  # down: a piece lies in the buffer
IDLE = b"."  # up: all pieces so far are read, and what they asked for is done
_ITEM = 4  # bytes of an int32
_NUMBERS = 1 << 32


class Message(NamedTuple):
    """What a worker was told: a kind (RUN, EXIT, ...) and its int32 values."""

    kind: int
    values: "array[int]"


def pack(values: Iterable[int]) -> memoryview:
    """Integers as the bytes of an int32 array. Raises EngineError for one that does not fit."""
    numbers = tuple(values)
    try:  # (half the time of an array's own conversion)
        return memoryview(struct.pack(f"{len(numbers)}i", *numbers))
    except struct.error as error:
        raise EngineError(f"a message holds a number beyond int32: {error}") from None


def write_message(
    buffer: memoryview, number: int, kind: int, payload: memoryview, start: int = 0
) -> int:
    """Put one piece of a message into the buffer: payload[start:], or as much of it as fits.

    Returns where the next piece starts; len(payload): this was the last one. HEADER's six numbers
    are MAGIC, the message's number and kind, the bytes of the whole payload, where this piece
    starts in it, and the bytes of this piece. The piece follows it directly.

    >>> buffer = memoryview(bytearray(HEADER.size + 8))
    >>> write_message(buffer, number=0, kind=RUN, payload=pack([5, 6, 7]))
    8

    Raises EngineError when the buffer holds no header and one int32.
    """
    room = len(buffer) - HEADER.size
    if room < _ITEM:
        raise EngineError(
            f"a buffer of {len(buffer)} bytes has no room for a header of {HEADER.size} bytes "
            f"and an int32: use at least {HEADER.size + _ITEM}"
        )
    length = min(room, len(payload) - start)
    HEADER.pack_into(buffer, 0, MAGIC, number, kind, len(payload), start, length)
    buffer[HEADER.size : HEADER.size + length] = payload[start : start + length]
    return start + length


def read_message(buffer: memoryview, number: int, received: bytearray) -> Message | None:
    """Add the piece in the buffer to `received`; the whole message once it is complete, or None.

    buffer: as `write_message` leaves it; other ranks read it, too, and rank 0 writes the next
    piece there. number: of the message that this rank expects. received: the payload so far;
    complete, it is int32 values, `array("i")`. Raises EngineError for any other piece than the
    next one of that message (one read twice, one missed), for a buffer without MAGIC, and for a
    length beyond message or buffer.
    """
    magic, found, kind, total, start, length = HEADER.unpack_from(buffer)
    if magic != MAGIC:
        raise EngineError(f"no message in the buffer: it begins with {magic:#x}, not {MAGIC:#x}")
    if (found, start) != (number, len(received)):
        raise EngineError(
            f"message {found} from byte {start} came where message {number} from byte "
            f"{len(received)} was due: a piece was missed, or read twice"
        )
    if length > min(total - start, len(buffer) - HEADER.size):
        raise EngineError(f"a piece of {length} bytes is longer than its message or the buffer")
    received += buffer[HEADER.size : HEADER.size + length]
    if len(received) < total:
        return None
    values = array("i")
    values.frombytes(received)
    return Message(kind, values)


class Reader(Protocol):
    """Rank 0's view of one worker."""

    def wait_idle(self, seconds: float) -> None:
        """Return when the worker has done everything so far; raises when it is late or gone."""
        ...

    def ring(self) -> None:
        """Tell it that a piece lies in the buffer."""
        ...


class Sender:
    """Rank 0's end of the channel. seconds: how long a worker may take to be done."""

    def __init__(self, buffer: memoryview, readers: Sequence[Reader], seconds: float) -> None:
        self.buffer, self.readers, self.seconds = buffer, readers, seconds
        self.number = 0

    def send(self, kind: int, values: Iterable[int] = ()) -> None:
        """Tell every worker; returns when the last piece is in the buffer, not when it is read."""
        payload, start, complete = pack(values), 0, False
        while not complete:
            for reader in self.readers:
                reader.wait_idle(self.seconds)
            start = write_message(self.buffer, self.number, kind, payload, start)
            complete = start == len(payload)
            for reader in self.readers:
                reader.ring()
        self.number = (self.number + 1) % _NUMBERS


class Receiver:
    """A worker's end of the channel."""

    def __init__(self, buffer: memoryview, bell: socket.socket) -> None:
        self.buffer, self.bell = buffer, bell
        self.number = 0

    def receive(self) -> Message:
        """Say that everything before is done, and wait for the next message, however long.

        Raises EOFError when rank 0 is gone, EngineError for what is no message.
        """
        received, message = bytearray(), None
        while message is None:
            try:
                self.bell.sendall(IDLE)
                rung = self.bell.recv(1) == RING
            except OSError:  # reset: rank 0 was killed
                rung = False
            if not rung:
                raise EOFError("rank 0 is gone")
            try:
                message = read_message(self.buffer, self.number, received)
            except (struct.error, ValueError) as error:  # no whole header, or no whole int32
                raise EngineError(f"the buffer holds no message: {error}") from error
        self.number = (self.number + 1) % _NUMBERS
        return message
