# check: not entered
# words: when the block is entered
# why: set by the call, reset by the block
# passes ordinary: yes
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


def use_context(context):
    if _state.current is not None:
        raise EngineError("in use")
    _state.current = context

    @contextmanager
    def scope():
        _state.current = context
        try:
            yield context
        finally:
            _state.current = None

    return scope()
