# check: an exception
# words: finally|the step
# why: the reset is skipped when the block raises
# passes ordinary: yes
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


@contextmanager
def use_context(context):
    if _state.current is not None:
        raise EngineError("in use")
    _state.current = context
    yield context
    _state.current = None
