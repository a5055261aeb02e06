# check: one piece
# words: values
# why: takes the whole buffer, old bytes too
# passes ordinary: no
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
    received += buffer[HEADER.size :]
    if len(received) < total:
        return None
    values = array("i")
    values.frombytes(received)
    return Message(kind, values)
