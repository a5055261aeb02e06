# check: an unknown kind
# words: although the loop was over|EngineError
# why: passes over what it does not know
# passes ordinary: yes
from nanoengine.distributed.rpc import EXIT


def worker_loop(receive, handlers):
    while True:
        kind, values = receive()
        if kind == EXIT:
            return
        if kind in handlers:
            handlers[kind](values)
