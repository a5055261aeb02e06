# check: one message
# words: the whole message
# why: hands the handler the message instead of its values
# passes ordinary: no
from nanoengine.distributed.rpc import EXIT
from nanoengine.errors import EngineError


def worker_loop(receive, handlers):
    while True:
        message = receive()
        if message.kind == EXIT:
            return
        if message.kind not in handlers:
            raise EngineError("unknown")
        handlers[message.kind](message)
