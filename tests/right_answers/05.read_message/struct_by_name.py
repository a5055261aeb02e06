from array import array

from nanoengine.distributed import rpc
from nanoengine.errors import EngineError


def read_message(buffer, number, received):
    header = dict(
        zip(
            ("magic", "number", "kind", "total", "start", "length"),
            rpc.HEADER.unpack(buffer[: rpc.HEADER.size]),
            strict=False,
        )
    )
    body = bytes(buffer[rpc.HEADER.size :][: header["length"]])
    due = (rpc.MAGIC, number, len(received))
    if (header["magic"], header["number"], header["start"]) != due:
        raise EngineError(f"expected {due}, found {header}")
    if len(body) != header["length"] or len(received) + len(body) > header["total"]:
        raise EngineError(f"length {header['length']} cannot be")
    received.extend(body)
    if len(received) == header["total"]:
        return rpc.Message(header["kind"], array("i", bytes(received)))
    return None
