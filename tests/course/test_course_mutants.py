"""Mutants of the library's functions: each one fails, or is explained in survivors/<id>.json."""

import json
from pathlib import Path
from typing import Any

import pytest
from course_mutants import mutants

from nanoengine.course import exercises, grade
from nanoengine.course.judge import expected_results
from nanoengine.course.registry import Exercise
from nanoengine.course.source import run_source
from nanoengine.course.stubs import solution_source
from nanoengine.course.values import without_arrays

SURVIVORS: dict[str, dict[str, str]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "survivors").glob("*.json"))
}


def fails_the_contract(exercise: Exercise, source: str) -> bool:
    """The quick part of a grade, in this process: a mutant's own crash is a failure, too."""
    try:
        function = run_source(source, "mutant")[exercise.function]
        for case, wanted in zip(exercise.cases(), expected_results(exercise), strict=True):
            got = exercise.observe(function, exercise.arguments(case.args))
            difference = exercise.compare(case, without_arrays(wanted)[0], without_arrays(got)[0])
            if difference is not None and difference.binding:
                return True
    except Exception:
        return True
    return False


def survivors_of(exercise: Exercise) -> tuple[list[str], int]:
    """Names of the mutants that pass, and how many mutants there are."""
    passed, count = [], 0
    for name, source in mutants(solution_source(exercise)):
        count += 1
        if not fails_the_contract(exercise, source) and grade(exercise.id, source).state != "fail":
            passed.append(name)
    return passed, count


@pytest.mark.parametrize("exercise_id", list(SURVIVORS))
def test_every_mutant_fails_or_is_explained(exercise_id: str) -> None:
    passed, count = survivors_of(exercises[exercise_id])
    explained: dict[str, Any] = SURVIVORS[exercise_id]
    assert count >= 3, "too small to mutate?"
    assert sorted(set(passed)) == sorted(explained), "explain them, or add the case that kills them"
    assert all(len(reason) > 10 for reason in explained.values())


def test_every_exercise_is_mutated() -> None:
    """But for kernels: a mutated kernel would write anywhere into this process's memory."""
    assert set(SURVIVORS) == {name for name, entry in exercises.items() if not entry.needs}
