# check: the second piece
# words: byte 8|beginning again
# why: every piece is the payload's beginning
# passes ordinary: yes
from nanoengine.distributed.rpc import HEADER, MAGIC
from nanoengine.errors import EngineError


def write_message(buffer, number, kind, payload, start=0):
    room = len(buffer) - HEADER.size
    if room < 4:
        raise EngineError(f"no room in {len(buffer)} bytes")
    length = min(room, len(payload) - start)
    HEADER.pack_into(buffer, 0, MAGIC, number, kind, len(payload), start, length)
    buffer[HEADER.size : HEADER.size + length] = payload[:length]
    return start + length
