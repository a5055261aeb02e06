# check: one message
# words: TypeError
# why: unpacks the values into arguments
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
        handlers[kind](*values)
