# remark: fill the room
from nanoengine.distributed.rpc import HEADER, MAGIC
from nanoengine.errors import EngineError


def write_message(buffer, number, kind, payload, start=0):
    room = (len(buffer) - HEADER.size) // 4 * 4  # whole int32 only
    if room <= 0:
        raise EngineError("the buffer is too small")
    end = min(start + room, len(payload))
    HEADER.pack_into(buffer, 0, MAGIC, number, kind, payload.nbytes, start, end - start)
    for at in range(start, end):
        buffer[HEADER.size + at - start] = payload[at]
    return end
