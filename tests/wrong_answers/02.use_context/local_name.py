# check: inside
# words: no context|_state.current
# why: `current = context` binds a local name
# passes ordinary: no
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


@contextmanager
def use_context(context):
    if _state.current is not None:
        raise EngineError("in use")
    current = context
    try:
        yield current
    finally:
        current = None
