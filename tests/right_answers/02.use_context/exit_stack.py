from contextlib import ExitStack, contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


@contextmanager
def use_context(context):
    if _state.current is not None:
        raise EngineError("in use")
    with ExitStack() as stack:
        stack.callback(setattr, _state, "current", None)
        _state.current = context
        yield context
