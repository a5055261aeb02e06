# check: one message
# words: TypeError
# why: receive is used as a list
# passes ordinary: no
from nanoengine.distributed.rpc import EXIT


def worker_loop(receive, handlers):
    for kind, values in receive():
        if kind == EXIT:
            return
        handlers[kind](values)
