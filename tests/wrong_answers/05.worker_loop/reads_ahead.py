# check: one message
# words: wait for ever|asked
# why: reads the next message before it runs this one
# passes ordinary: no
from nanoengine.distributed.rpc import EXIT
from nanoengine.errors import EngineError


def worker_loop(receive, handlers):
    kind, values = receive()
    while kind != EXIT:
        if kind not in handlers:
            raise EngineError("unknown")
        following = receive()
        handlers[kind](values)
        kind, values = following
    receive()
