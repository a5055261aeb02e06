from nanoengine.distributed.rpc import EXIT
from nanoengine.errors import EngineError


def worker_loop(receive, handlers):
    for kind, values in iter(receive, None):
        if kind == EXIT:
            break
        handler = handlers.get(kind)
        if handler is None:
            raise EngineError(f"kind {kind} is not known, only {list(handlers)}")
        handler(values)
