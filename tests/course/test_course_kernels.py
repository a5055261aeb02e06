"""Exercises that are kernels: what the stub holds, and what happens where Triton is missing."""

import importlib.util
from typing import Any

import pytest
import torch

from nanoengine.attention import reference
from nanoengine.course import exercises, grade, stub, swap
from nanoengine.course import registry as registry_module
from nanoengine.course.notebook import plug_in, solution
from nanoengine.course.stubs import solution_source

KERNEL = "02.store_kvcache_triton"


@pytest.fixture
def no_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: nothing called triton can be found."""

    def find_spec(name: str, *args: Any) -> Any:
        return None if name.startswith("triton") else importlib.util.find_spec(name, *args)

    monkeypatch.setattr(registry_module, "find_spec", find_spec)


@pytest.mark.usefixtures("no_triton")
def test_without_triton_an_answer_is_partial_and_says_why() -> None:
    result = grade(KERNEL, "def store_kvcache(*args):\n    pass\n")
    assert (result.state, result.points) == ("partial", 0)
    assert "lacks triton" in result.message
    assert not result.usable
    assert grade(KERNEL, stub(KERNEL)).state == "todo"


@pytest.mark.usefixtures("no_triton")
def test_an_answer_that_never_ran_is_not_plugged_in(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NANOENGINE_WORK", str(tmp_path))
    (tmp_path / exercises[KERNEL].filename).write_text("import triton_that_is_not_there\n")
    library = reference.store_kvcache
    with plug_in(KERNEL) as summary:
        assert reference.store_kvcache is library
    assert f"{KERNEL}: the library" in summary.text


def test_the_stub_has_the_kernel_and_the_solution_its_helper() -> None:
    text = stub(KERNEL)
    assert text.index("import triton") < text.index("@triton.jit") < text.index("def store_kvcache")
    assert text.count("NotAttempted(") == 1
    whole = solution_source(exercises[KERNEL])
    assert "def _store_kvcache(" in whole
    assert "import _store_kvcache" not in whole


def test_a_kernel_reaches_the_engine_of_this_machine() -> None:
    pytest.importorskip("triton")
    with swap(KERNEL, len):
        assert reference.store_kvcache is len
    assert reference.store_kvcache is not len


def test_an_extra_name_is_imported_by_the_stub() -> None:
    assert "from nanoengine.context import Context, _state" in stub("02.use_context")
    assert "from nanoengine.errors import EngineError" in stub("02.use_context")


def test_the_library_is_the_fallback(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANOENGINE_WORK", str(tmp_path))
    store = solution("02.store_kvcache")
    k_cache, v_cache = torch.zeros(2, 4, 1, 1), torch.zeros(2, 4, 1, 1)
    k = torch.ones(1, 1, 1)
    store(k, k, k_cache, v_cache, torch.tensor([5], dtype=torch.int32))
    assert k_cache.flatten().nonzero().tolist() == [[5]]
