# remark: yield it
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


@contextmanager
def use_context(context):
    if _state.current is not None:
        raise EngineError("in use")
    _state.current = context
    try:
        yield
    finally:
        _state.current = None
