# check: inside
# words: no context|_state.current
# why: a global of the cell: operators read another
# passes ordinary: no
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


_current = None


@contextmanager
def use_context(context):
    global _current
    if _current is not None:
        raise EngineError("in use")
    _current = context
    try:
        yield context
    finally:
        _current = None
