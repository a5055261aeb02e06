# check: a handler that raises
# words: kept
# why: returns after an exception: rank 0 does not hear of it
# passes ordinary: yes
from nanoengine.distributed.rpc import EXIT
from nanoengine.errors import EngineError


def worker_loop(receive, handlers):
    while True:
        kind, values = receive()
        if kind == EXIT:
            return
        if kind not in handlers:
            raise EngineError("unknown")
        try:
            handlers[kind](values)
        except Exception:
            return
