"""Graders are graded: each wrong answer fails with the right words, each right one passes."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from course_answers import RIGHT, WRONG, Answer

from nanoengine.config import EngineConfig
from nanoengine.course import benchmarks, exercises, grade, stub, swap
from nanoengine.course.result import MESSAGE_LIMIT
from nanoengine.course.scenarios import SCENARIOS
from nanoengine.course.source import run_source
from nanoengine.course.stubs import solution_source
from nanoengine.course.tiny import save_model
from nanoengine.engine.engine import LLMEngine
from nanoengine.sampling_params import SamplingParams

CORE_WRONG, SMALL_WRONG, RIGHT_ANSWERS, ORDINARY = 8, 3, 2, 2


def skip_unless_it_can_run(exercise_id: str) -> None:
    """A kernel's exercise without Triton is "partial": nothing of it can be run."""
    missing = exercises[exercise_id].missing()
    if missing is not None:
        pytest.skip(f"{exercise_id} needs {missing}")


def full_state(exercise_id: str) -> str:
    """What the best answer gets: "partial" where a part of the grade needs a GPU."""
    needs_gpu = exercises[exercise_id].gpu is not None
    return "partial" if needs_gpu and not torch.cuda.is_available() else "pass"


@pytest.mark.parametrize("answer", WRONG, ids=str)
def test_wrong_answer_fails_in_the_named_check_with_the_right_words(answer: Answer) -> None:
    skip_unless_it_can_run(answer.exercise)
    result = grade(answer.exercise, answer.text)
    assert result.state == "fail", result
    first = next((check.name for check in result.checks if check.ok is False), "none")
    assert first == answer.header["check"], result
    missing = [word for word in answer.words if word not in result.message]
    assert not missing, f"{missing} not in: {result.message}"
    assert len(result.message) <= MESSAGE_LIMIT
    assert result.points == 0


@pytest.mark.parametrize("answer", RIGHT, ids=str)
def test_right_answer_passes_however_it_looks(answer: Answer) -> None:
    skip_unless_it_can_run(answer.exercise)
    result = grade(answer.exercise, answer.text)
    assert result.state == full_state(answer.exercise), result
    assert all(check.ok is not False for check in result.checks)
    assert result.points == exercises[answer.exercise].points
    remark = answer.header.get("remark")
    assert ("differs from the contract" in result.message) == (remark is not None), result
    assert remark is None or remark in result.message


@pytest.mark.parametrize("exercise_id", list(exercises))
def test_library_passes_and_stub_is_todo(exercise_id: str) -> None:
    exercise = exercises[exercise_id]
    if exercise.missing() is None:
        assert grade(exercise_id, solution_source(exercise)).state == full_state(exercise_id)
    assert grade(exercise_id, stub(exercise)).state == "todo"


@pytest.mark.parametrize("exercise_id", list(exercises))
def test_there_are_enough_answers(exercise_id: str) -> None:
    wanted = CORE_WRONG if exercises[exercise_id].level == "core" else SMALL_WRONG
    mine = [a for a in WRONG if a.exercise == exercise_id]
    assert len(mine) >= wanted
    assert sum(a.header["passes ordinary"] == "yes" for a in mine) >= ORDINARY
    assert Counter(a.exercise for a in RIGHT)[exercise_id] >= RIGHT_ANSWERS


def test_answers_are_of_known_exercises() -> None:
    assert {a.exercise for a in [*WRONG, *RIGHT]} == set(exercises)


def ordinary_tokens(folder: Path, ranks: int = 1, eager: bool = True) -> list[list[int]]:
    """A workload as one would write it first: three different prompts, no limits in reach.

    eager: False for answers that run only where there are graphs.
    """
    config = EngineConfig.from_kwargs(
        device="cpu", kvcache_block_size=4, num_kvcache_blocks=64, overlap=False,
        tensor_parallel_size=ranks, enforce_eager=eager, max_num_seqs=512 if eager else 9,
    )  # fmt: skip
    engine = LLMEngine(folder, config)
    engine.block_manager.free_block_ids.popitem(last=False)  # block 0: taken by somebody else
    engine.runner.kv_cache.zero_()  # as fresh memory mostly is: no NaN left by an earlier test
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    ids = [
        engine.add_request(p, params) for p in ([5, 9, 2, 30, 8], [7, 1, 4], [60, 3, 12, 11, 40])
    ]
    outputs = [engine.output(i) for i in ids]
    while engine.has_unfinished:
        engine.step()
    engine.close()
    return [output.token_ids for output in outputs]


ORDINARY_BENCHMARK = ("--requests=3", "--input=6-6", "--output=6-6", "--repeats=1", "--no-overlap")


def ordinary_work(exercise_id: str, folder: Path) -> Any:
    """What an ordinary workload shows: tokens, or for a benchmark's parts its report."""
    if exercises[exercise_id].target.startswith("nanoengine.bench"):
        return benchmarks.run(ORDINARY_BENCHMARK, folder)
    scenarios = [SCENARIOS[name] for name in exercises[exercise_id].scenarios]
    ranks = max((scenario.ranks for scenario in scenarios), default=1)
    graphs = [scenario.options.get("enforce_eager") is False for scenario in scenarios]
    return ordinary_tokens(folder, ranks, eager=not graphs or not all(graphs))


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize(
    "answer", [a for a in WRONG if a.header["passes ordinary"] == "yes"], ids=str
)
def test_some_wrong_answers_pass_an_ordinary_workload(answer: Answer, tiny_folder: Path) -> None:
    """So the adversarial workload is needed, and not only nice to have."""
    skip_unless_it_can_run(answer.exercise)
    if exercises[answer.exercise].needs and torch.cuda.is_available():
        pytest.skip("a kernel that is not interpreted cannot work on the CPU's tensors")
    function = run_source(answer.text, str(answer))[exercises[answer.exercise].function]
    expected = ordinary_work(answer.exercise, tiny_folder)
    with swap(answer.exercise, function):
        assert ordinary_work(answer.exercise, tiny_folder) == expected
