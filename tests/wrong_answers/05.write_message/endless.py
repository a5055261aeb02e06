# check: a buffer too small for anything
# words: expected EngineError|never end
# why: no check: a buffer without room makes an endless message
# passes ordinary: yes
from nanoengine.distributed.rpc import HEADER, MAGIC


def write_message(buffer, number, kind, payload, start=0):
    length = max(0, min(len(buffer) - HEADER.size, len(payload) - start))
    HEADER.pack_into(buffer, 0, MAGIC, number, kind, len(payload), start, length)
    buffer[HEADER.size : HEADER.size + length] = payload[start : start + length]
    return start + length
