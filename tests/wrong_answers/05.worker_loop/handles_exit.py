# check: one message
# words: a handler of EXIT
# why: looks the handler up before it looks whether there is one
# passes ordinary: no
from nanoengine.distributed.rpc import EXIT


def worker_loop(receive, handlers):
    while True:
        kind, values = receive()
        handlers[kind](values)
        if kind == EXIT:
            break
