# remark: AssertionError
from contextlib import contextmanager

from nanoengine.context import _state


@contextmanager
def use_context(context):
    assert _state.current is None, "in use"
    _state.current = context
    try:
        yield context
    finally:
        _state.current = None
