# check: one piece
# words: MAGIC in the header
# why: the payload first, the header behind it
# passes ordinary: no
from nanoengine.distributed.rpc import HEADER, MAGIC
from nanoengine.errors import EngineError


def write_message(buffer, number, kind, payload, start=0):
    room = len(buffer) - HEADER.size
    if room < 4:
        raise EngineError(f"no room in {len(buffer)} bytes")
    length = min(room, len(payload) - start)
    buffer[:length] = payload[start : start + length]
    HEADER.pack_into(buffer, length, MAGIC, number, kind, len(payload), start, length)
    return start + length
