# check: one message
# words: only EXIT ends it
# why: runs one message and ends
# passes ordinary: no
from nanoengine.distributed.rpc import EXIT
from nanoengine.errors import EngineError


def worker_loop(receive, handlers):
    kind, values = receive()
    if kind == EXIT:
        return
    if kind not in handlers:
        raise EngineError("unknown")
    handlers[kind](values)
