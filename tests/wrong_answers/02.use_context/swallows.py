# check: an exception
# words: should come out|swallowed
# why: return in finally
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
    except Exception as error:
        print(error)
    finally:
        _state.current = None
