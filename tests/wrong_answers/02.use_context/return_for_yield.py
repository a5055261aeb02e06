# check: inside
# words: could not use what you returned|not an iterator
# why: return where yield belongs
# passes ordinary: no
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


@contextmanager
def use_context(context):
    if _state.current is not None:
        raise EngineError("in use")
    _state.current = context
    try:
        return context
    finally:
        _state.current = None
