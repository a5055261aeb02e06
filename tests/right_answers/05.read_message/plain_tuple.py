# remark: plain tuple
from array import array

from nanoengine.distributed.rpc import HEADER, MAGIC
from nanoengine.errors import EngineError


def read_message(buffer, number, received):
    magic, found, kind, total, start, length = HEADER.unpack_from(buffer)
    end = start + length
    if [magic, found, start] != [MAGIC, number, len(received)]:
        raise EngineError("this is not the piece that is due")
    if end > total or HEADER.size + length > len(buffer):
        raise EngineError("the piece is too long")
    received[start:end] = buffer[HEADER.size : HEADER.size + length]
    if end == total:
        return kind, array("i", bytes(received))
    return None
