from nanoengine.distributed.rpc import HEADER, MAGIC
from nanoengine.errors import EngineError


def write_message(buffer, number, kind, payload, start=0):
    body = buffer[HEADER.size :]
    if len(body) < 4:
        raise EngineError("the buffer is too small")
    body[:] = bytes(len(body))
    piece = payload[start : start + len(body)]
    body[: len(piece)] = piece
    HEADER.pack_into(buffer, 0, MAGIC, number, kind, len(payload), start, len(piece))
    return start + len(piece)
