from nanoengine.distributed.rpc import HEADER, MAGIC
from nanoengine.errors import EngineError


def write_message(buffer, number, kind, payload, start=0):
    if len(buffer) < HEADER.size + 4:
        raise EngineError(f"{len(buffer)} bytes hold no header and int32: share more memory")
    piece = bytes(payload[start:][: len(buffer) - HEADER.size])
    frame = HEADER.pack(MAGIC, number, kind, len(payload), start, len(piece)) + piece
    buffer[: len(frame)] = frame
    return start + len(piece)
