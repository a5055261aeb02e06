# check: inside
# words: a generator|keep @contextmanager
# why: @contextmanager deleted with the marker
# passes ordinary: no
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


def use_context(context):
    if _state.current is not None:
        raise EngineError("in use")
    _state.current = context
    try:
        yield context
    finally:
        _state.current = None
