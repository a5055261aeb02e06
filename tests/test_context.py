"""The operators' implicit parameters: one scope at a time, reset whatever happens."""

import inspect
from types import FunctionType

import pytest
import torch

from nanoengine import context as module
from nanoengine.context import Context, captured_context, get_context, use_context
from nanoengine.errors import EngineError


def make_context() -> Context:
    """A decode context of one row."""
    return Context(is_prefill=False, slot_mapping=torch.tensor([3], dtype=torch.int32))


def test_it_is_there_inside_and_gone_after() -> None:
    context = make_context()
    with use_context(context) as inside:
        assert inside is context
        assert get_context() is context
    with pytest.raises(EngineError, match=r"no Context is in use.*use_context"):
        get_context()


def test_an_exception_resets_it() -> None:
    with pytest.raises(ZeroDivisionError), use_context(make_context()):
        raise ZeroDivisionError
    with use_context(make_context()):
        pass


def test_nesting_is_refused_and_the_outer_stays() -> None:
    outer = make_context()
    with use_context(outer):
        with pytest.raises(EngineError, match=r"already in use.*do not nest"), use_context(outer):
            pytest.fail("the inner scope was entered")
        assert get_context() is outer


def is_on_the_memory_of(seen: Context, captured: Context) -> bool:
    return seen.slot_mapping.data_ptr() == captured.slot_mapping.data_ptr()


def test_a_capture_hides_the_live_context_and_gives_it_back() -> None:
    live, captured = make_context(), make_context()
    with use_context(live):
        with captured_context(captured):
            assert is_on_the_memory_of(get_context(), captured)
        assert get_context() is live
        with pytest.raises(ZeroDivisionError), captured_context(captured):
            raise ZeroDivisionError
        assert get_context() is live
    with captured_context(captured):
        first = get_context()
        assert is_on_the_memory_of(first, captured)
    with captured_context(captured):  # another replay: nothing kept for the first may serve it
        assert get_context() is not first
        assert get_context().slot_mapping is not first.slot_mapping
    with pytest.raises(EngineError):
        get_context()


def test_a_copy_of_a_function_works_on_the_same_state() -> None:
    """A student's solution is such a copy: other module, same shared object."""
    copy = FunctionType(get_context.__code__, dict(vars(module)), "get_context")
    context = make_context()
    with use_context(context):
        assert copy() is context
    source = inspect.getsource(use_context)
    names = dict(vars(module))
    exec(source, names)
    with names["use_context"](context):
        assert get_context() is context


def test_a_context_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        make_context().is_prefill = True  # type: ignore[misc]


def test_a_context_of_the_wrong_kind_is_named() -> None:
    context = make_context()
    with pytest.raises(EngineError, match="lacks cu_seqlens_q"):
        context.prefill_lengths()
    with pytest.raises(EngineError, match="lacks context_lens"):
        context.decode_tensors()
