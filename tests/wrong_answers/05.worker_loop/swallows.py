# check: a handler that raises
# words: although the loop was over|out of step
# why: goes on after an exception: this rank is out of step
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
        try:
            handlers[kind](values)
        except Exception as error:
            print(error)
