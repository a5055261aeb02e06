# check: a message of no values
# words: run 1 should be the handler of kind 1 with []
# why: takes a message of no values for none
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
        if values:
            handlers[kind](values)
