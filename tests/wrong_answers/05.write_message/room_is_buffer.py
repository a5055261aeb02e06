# check: the first piece
# words: ValueError
# why: forgets that the header needs room
# passes ordinary: no
from nanoengine.distributed.rpc import HEADER, MAGIC
from nanoengine.errors import EngineError


def write_message(buffer, number, kind, payload, start=0):
    if len(buffer) < HEADER.size + 4:
        raise EngineError(f"no room in {len(buffer)} bytes")
    length = min(len(buffer), len(payload) - start)
    HEADER.pack_into(buffer, 0, MAGIC, number, kind, len(payload), start, length)
    buffer[HEADER.size : HEADER.size + length] = payload[start : start + length]
    return start + length
