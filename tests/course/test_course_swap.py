"""swap, the registry, stubs, and whether the scenarios reach what they claim to reach."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nanoengine.course import CourseError, exercises, questions, stub, swap
from nanoengine.course.scenarios import SCENARIOS, run
from nanoengine.course.source import run_source, same_code
from nanoengine.course.stubs import is_stub, solution_source
from nanoengine.course.tiny import save_model
from nanoengine.engine import inputs
from nanoengine.engine.engine import LLMEngine
from nanoengine.engine.record import StepRecord
from nanoengine.errors import WorkerError


class Reached(Exception):
    """Raised by a function that was swapped in."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("tiny"))


def raises(*args: Any, **options: Any) -> Any:
    raise Reached


@pytest.mark.parametrize("exercise_id", list(exercises))
def test_the_swap_reaches_the_running_engine(exercise_id: str, folder: Path) -> None:
    exercise = exercises[exercise_id]
    if not exercise.scenarios:
        pytest.skip("no scenario: it is graded by its contract alone")
    # on another rank it is that rank's exception, which rank 0 reports
    with pytest.raises((Reached, WorkerError)) as caught, swap(exercise_id, raises):
        run(SCENARIOS[exercise.scenarios[0]], folder)
    assert "Reached" in repr(caught.value)


def test_swap_restores_after_an_exception() -> None:
    before = inputs.slot_mapping, inputs.prepare_decode
    inside: list[Any] = []
    both = {"01.slot_mapping": raises, "01.prepare_decode": raises}
    with pytest.raises(Reached), swap(both):  # noqa: PT012  (the swap is what is tested)
        inside += [inputs.slot_mapping, inputs.prepare_decode]
        inputs.slot_mapping([1], 0, 1, 4)
    assert inside == [raises, raises]
    assert (inputs.slot_mapping, inputs.prepare_decode) == before


def test_swaps_nest() -> None:
    library = inputs.slot_mapping
    with swap("01.slot_mapping", raises):
        with swap("01.slot_mapping", len):
            assert inputs.slot_mapping is len
        assert inputs.slot_mapping is raises
    assert inputs.slot_mapping is library


def test_swap_refuses_what_it_does_not_know() -> None:
    with (
        pytest.raises(CourseError, match=r"did you mean '01\.slot_mapping'"),
        swap("01.slots", len),
    ):
        pass
    with (
        pytest.raises(CourseError, match="needs a function, not int"),
        swap("01.slot_mapping", 3),  # type: ignore[arg-type]
    ):
        pass


def test_a_slot_mapping_reaches_the_prepare_functions() -> None:
    with pytest.raises(Reached), swap("01.slot_mapping", raises):
        inputs.prepare_decode([FakeSequence()], 4)


class FakeSequence:
    num_cached_tokens, num_scheduled_tokens, block_table, last_token = 0, 1, [3], 7

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: slice) -> list[int]:
        return [7][index]


# -- stubs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise_id", list(exercises))
def test_stub_is_the_librarys_signature_and_docstring(exercise_id: str) -> None:
    exercise = exercises[exercise_id]
    text = stub(exercise)
    library = exercise.place().function
    library = getattr(library, "__func__", library)
    assert is_stub(exercise, text)
    assert not is_stub(exercise, solution_source(exercise))
    assert not same_code(text, solution_source(exercise))
    function = run_source(text, "stub")[exercise.function]
    assert function.__doc__.split() == (library.__doc__ or "").split()
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("exercise_id", list(exercises))
def test_exercises_are_complete(exercise_id: str) -> None:
    exercise = exercises[exercise_id]
    assert len(exercise.hints) == 3
    assert all(len(hint) > 40 for hint in exercise.hints)
    assert exercise.minutes > 0
    assert exercise.points > 0
    cases = exercise.cases()
    assert cases
    assert len({repr(case.args) for case in cases}) == len(cases), "two cases are the same"


@pytest.mark.parametrize("question_id", list(questions))
def test_questions_say_todo_fail_and_pass(question_id: str) -> None:
    question: Any = questions[question_id]
    for student in ("ada", "bob", "eve"):
        assert question.ask(student) == question.ask(student)
        assert question.check(student, ...).state == "todo"
        assert question.check(student, None).state == "fail"
        if hasattr(question, "options"):
            states = [question.check(student, x).state for x in question.lettered(student)]
            assert sorted(states) == ["fail"] * (len(states) - 1) + ["pass"]
        else:
            right = question.answer(question.inputs(student))
            assert question.check(student, right).state == "pass"


def test_students_get_different_questions() -> None:
    asked = {questions["01.q.slots"].ask(student) for student in "abcdefgh"}
    assert len(asked) > 4


# -- scenarios ---------------------------------------------------------------------------------


def records_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """(record, engine) of every run of the model."""
    seen: list[Any] = []
    launch: Callable[..., Any] = LLMEngine._launch

    def watched(self: LLMEngine, batch: Any, number: int) -> Any:
        seqs = [(s.request_id, s.num_cached_tokens, len(s)) for s in batch.seqs]
        launched = launch(self, batch, number)
        record: StepRecord = launched.record
        seen.append((record, seqs, self.scheduler.num_preemptions, self.runner.block_size))
        return launched

    monkeypatch.setattr(LLMEngine, "_launch", watched)
    run(SCENARIOS[name], folder)
    return seen


def test_scenarios_reach_their_branches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = records_of("chunks", folder, monkeypatch)
    items = [i for record, *_ in chunks for i in record.batch.items if record.batch.is_prefill]
    assert any(item.end % 4 and not item.emits for item in items), "no chunk ends inside a block"
    assert any(item.start % 4 for item in items), "no chunk goes on inside a block"
    prefix = [r for r, *_ in records_of("prefix", folder, monkeypatch) if r.batch.is_prefill]
    starts = [[item.start for item in record.batch.items] for record in prefix]
    assert any(0 in row and any(row) for row in starts), "no batch is fresh and cached"
    assert any(len(i.seq.token_ids) and i.start == 4 for r in prefix for i in r.batch.items)
    buckets = [r for r, *_ in records_of("buckets", folder, monkeypatch) if not r.batch.is_prefill]
    sizes = {(len(r.batch.items), r.bucket) for r in buckets}
    assert {bucket for _, bucket in sizes} == {1, 2, 4, 8, 11}
    assert any(size < bucket for size, bucket in sizes), "no batch is padded"
    pool = records_of("small pool", folder, monkeypatch)
    assert pool[-1][2] > 0, "nothing is preempted"
    assert pool[0][3] == 8
    everything = [*chunks, *pool]
    slots = [s for record, *_ in everything for s in record.inputs.slot_mapping]
    assert 0 in slots, "block 0 is never used"
