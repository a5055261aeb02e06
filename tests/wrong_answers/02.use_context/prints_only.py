# check: nesting
# words: EngineError should be raised
# why: says it, and goes on
# passes ordinary: yes
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


@contextmanager
def use_context(context):
    if _state.current is not None:
        print("already in use")
    _state.current = context
    try:
        yield context
    finally:
        _state.current = None
