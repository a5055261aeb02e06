from nanoengine.distributed.rpc import EXIT
from nanoengine.errors import EngineError


def worker_loop(receive, handlers):
    message = receive()
    while message.kind != EXIT:
        try:
            handler = handlers[message.kind]
        except KeyError:
            raise EngineError(f"no handler for {message.kind}") from None
        handler(message.values)
        message = receive()
