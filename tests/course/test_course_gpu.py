"""The part of a grade that needs a GPU: asked for, left out honestly, and judged."""

from typing import Any

import pytest

from nanoengine.course import exercises, gpu
from nanoengine.course.gpu import Probed, with_gpu_check
from nanoengine.course.result import Check, Grade
from nanoengine.course.stubs import solution_source

GOOD = Grade("04.stage_inputs", "pass", 5, "the engine gives the same tokens.", (Check("a", True),))
STAGE = exercises["04.stage_inputs"]
NAME = "replay of real CUDA graphs"


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """As if there were a GPU on which the library computes 7; an answer whose text is a number
    computes that, any other fails. Gives what was run: (text, device).
    """
    ran: list[tuple[str, str]] = []

    def probe(exercise: Any, source: str, device: str) -> Probed:
        ran.append((source, device))
        if source == solution_source(exercise):
            return Probed(7, "")
        return (
            Probed(int(source), "") if source.isdigit() else Probed(None, "CUDA error: " + source)
        )

    monkeypatch.setattr(gpu, "no_gpu", lambda: None)
    monkeypatch.setattr(gpu, "_probe", probe)
    gpu._control.cache_clear()
    yield ran  # type: ignore[misc]
    gpu._control.cache_clear()


def test_without_a_gpu_the_grade_is_partial_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "no_gpu", lambda: "no GPU")
    result = with_gpu_check(STAGE, "", GOOD)
    assert result.state == "partial"
    assert result.usable
    assert result.points == GOOD.points
    assert f"not run: {NAME} (no GPU)" in result.message
    assert result.checks[-1] == Check(NAME, None, "no GPU")


def test_a_remark_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "no_gpu", lambda: "no GPU")
    told = Grade(GOOD.id, "pass", 5, "the same tokens. It differs from the contract: a word.")
    assert "It differs from the contract: a word." in with_gpu_check(STAGE, "", told).message


def test_only_answers_that_pass_and_have_a_probe_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "no_gpu", lambda: pytest.fail("asked for a GPU"))
    bad = Grade(GOOD.id, "fail", 0, "no")
    assert with_gpu_check(STAGE, "", bad) is bad
    assert with_gpu_check(exercises["01.slot_mapping"], "", GOOD) is GOOD


def test_the_same_numbers_pass(on_a_gpu: list[tuple[str, str]]) -> None:
    result = with_gpu_check(STAGE, "7", GOOD)
    assert result.state == "pass"
    assert result.checks[-1] == Check(NAME, True)
    assert on_a_gpu[-1] == ("7", "cuda")
    assert [device for _, device in on_a_gpu[:2]] == ["cpu", "cuda"]  # the library went first


@pytest.mark.parametrize(
    ("answer", "words"), [("8", "other numbers"), ("oh", "CUDA error: oh. See section 4")]
)
def test_other_numbers_and_errors_fail(
    on_a_gpu: list[tuple[str, str]], answer: str, words: str
) -> None:
    result = with_gpu_check(STAGE, answer, GOOD)
    assert result.state == "fail"
    assert result.points == 0
    assert words in result.message


def test_where_the_library_fails_the_answer_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(exercise: Any, source: str, device: str) -> Probed:
        return Probed(7, "") if device == "cpu" else Probed(None, "CUDA error: busy")

    monkeypatch.setattr(gpu, "no_gpu", lambda: None)
    monkeypatch.setattr(gpu, "_probe", probe)
    gpu._control.cache_clear()
    result = with_gpu_check(STAGE, "7", GOOD)
    gpu._control.cache_clear()
    assert result.state == "partial"
    assert "the library's own function does not run on this GPU: CUDA error: busy" in result.message


def test_a_probe_runs_in_a_process_of_its_own() -> None:
    """The real thing, but on the CPU; a text that raises gives its last line."""
    found = gpu._probe(STAGE, solution_source(STAGE), "cpu")
    assert not found.problem
    assert set(found.result) == {"outputs", "cache"}
    wrong = "def stage_inputs(*args):\n    raise ValueError('too bad')\n"
    assert gpu._probe(STAGE, wrong, "cpu") == Probed(None, "ValueError: too bad")
