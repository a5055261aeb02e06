# check: after nesting
# words: refuse before
# why: the refused second scope resets the first
# passes ordinary: yes
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


@contextmanager
def use_context(context):
    try:
        if _state.current is not None:
            raise EngineError("in use")
        _state.current = context
        yield context
    finally:
        _state.current = None
