# check: one message
# words: only EXIT ends it
# why: ends when a handler returns something false
# passes ordinary: no
from nanoengine.distributed.rpc import EXIT
from nanoengine.errors import EngineError


def worker_loop(receive, handlers):
    while True:
        kind, values = receive()
        if kind == EXIT:
            return
        if kind not in handlers:
            raise EngineError("unknown")
        if not handlers[kind](values):
            return
