# check: after
# words: the step is over
# why: set_context without reset_context
# passes ordinary: no
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


@contextmanager
def use_context(context):
    if _state.current is not None:
        raise EngineError("in use")
    _state.current = context
    yield context
