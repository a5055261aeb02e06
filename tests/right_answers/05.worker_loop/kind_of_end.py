# remark: EOFError
from nanoengine.distributed.rpc import EXIT
from nanoengine.errors import EngineError


def worker_loop(receive, handlers):
    alive = True
    while alive:
        try:
            kind, values = receive()
        except EOFError:
            return
        alive = kind != EXIT
        if alive and kind not in handlers:
            raise EngineError(f"kind {kind} has no handler")
        if alive:
            handlers[kind](values)
