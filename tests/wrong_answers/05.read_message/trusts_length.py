# check: refuses: beyond the message
# words: beyond the message's end|ValueError
# why: believes any length
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
    received += buffer[HEADER.size : HEADER.size + length]
    if len(received) < total:
        return None
    values = array("i")
    values.frombytes(received)
    return Message(kind, values)
