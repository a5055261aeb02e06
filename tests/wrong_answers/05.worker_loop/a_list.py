# check: one message
# words: a list | array
# why: handlers read the message's array
# passes ordinary: no
from nanoengine.distributed.rpc import EXIT
from nanoengine.errors import EngineError


def worker_loop(receive, handlers):
    while True:
        message = receive()
        if message.kind == EXIT:
            return
        if message.kind not in handlers:
            raise EngineError(f"unknown kind {message.kind}")
        handlers[message.kind](message.values.tolist())
