# check: the first piece
# words: the bytes of the whole payload|12
# why: the total is that of the piece: the reader stops too early
# passes ordinary: yes
from nanoengine.distributed.rpc import HEADER, MAGIC
from nanoengine.errors import EngineError


def write_message(buffer, number, kind, payload, start=0):
    room = len(buffer) - HEADER.size
    if room < 4:
        raise EngineError(f"no room in {len(buffer)} bytes")
    length = min(room, len(payload) - start)
    HEADER.pack_into(buffer, 0, MAGIC, number, kind, length, start, length)
    buffer[HEADER.size : HEADER.size + length] = payload[start : start + length]
    return start + length
