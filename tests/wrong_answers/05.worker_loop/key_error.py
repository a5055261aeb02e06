# check: an unknown kind
# words: KeyError
# why: a KeyError says nothing to whoever reads it on rank 0
# passes ordinary: yes
from nanoengine.distributed.rpc import EXIT


def worker_loop(receive, handlers):
    while True:
        kind, values = receive()
        if kind == EXIT:
            return
        handlers[kind](values)
