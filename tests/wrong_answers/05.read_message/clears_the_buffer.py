# check: one piece
# words: changed the buffer|other ranks
# why: marks the piece as read: the next rank finds nothing
# passes ordinary: yes
from array import array

from nanoengine.distributed.rpc import HEADER, MAGIC, Message
from nanoengine.errors import EngineError


def read_message(buffer, number, received):
    magic, found, kind, total, start, length = HEADER.unpack_from(buffer)
    if magic != MAGIC:
        raise EngineError("no message")
    if found != number:
        raise EngineError("another message")
    if start != len(received):
        raise EngineError("another piece")
    if length > total - start or length > len(buffer) - HEADER.size:
        raise EngineError("too long")
    received += buffer[HEADER.size : HEADER.size + length]
    HEADER.pack_into(buffer, 0, 0, 0, 0, 0, 0, 0)
    if len(received) < total:
        return None
    values = array("i")
    values.frombytes(received)
    return Message(kind, values)
