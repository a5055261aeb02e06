from nanoengine.context import _state
from nanoengine.errors import EngineError


class use_context:
    def __init__(self, context):
        self.context = context

    def __enter__(self):
        if _state.current is not None:
            raise EngineError("one at a time")
        _state.current = self.context
        return self.context

    def __exit__(self, *exception):
        _state.current = None
