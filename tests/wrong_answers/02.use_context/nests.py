# check: nesting
# words: EngineError should be raised
# why: restores the outer one, as most scopes do
# passes ordinary: yes
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


@contextmanager
def use_context(context):
    outer, _state.current = _state.current, context
    try:
        yield context
    finally:
        _state.current = outer
