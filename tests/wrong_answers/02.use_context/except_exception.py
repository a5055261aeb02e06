# check: Ctrl-C
# words: finally
# why: KeyboardInterrupt is no Exception
# passes ordinary: yes
from contextlib import contextmanager

from nanoengine.context import _state
from nanoengine.errors import EngineError


@contextmanager
def use_context(context):
    if _state.current is not None:
        raise EngineError("in use")
    _state.current = context
    try:
        yield context
    except Exception:
        _state.current = None
        raise
    _state.current = None
