# check: one piece
# words: the message's number in the header should be 0
# why: number and kind exchanged
# passes ordinary: no
from nanoengine.distributed.rpc import HEADER, MAGIC
from nanoengine.errors import EngineError


def write_message(buffer, number, kind, payload, start=0):
    room = len(buffer) - HEADER.size
    if room < 4:
        raise EngineError(f"no room in {len(buffer)} bytes")
    length = min(room, len(payload) - start)
    HEADER.pack_into(buffer, 0, MAGIC, kind, number, len(payload), start, length)
    buffer[HEADER.size : HEADER.size + length] = payload[start : start + length]
    return start + length
