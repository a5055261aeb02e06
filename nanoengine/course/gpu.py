"""What a grade adds on a GPU: the answer at work there, in a process of its own.

The grading server computes on the CPU, where every student's machine gives the same verdict. An
exercise with a `gpu` probe is run once more on a real device, after everything else passed: the
library's function first (what it cannot do there is no student's fault), then the answer.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from nanoengine.course.errors import CourseError
from nanoengine.course.registry import Exercise, exercises
from nanoengine.course.result import Check, Grade, shorten
from nanoengine.course.source import run_source
from nanoengine.course.stubs import solution_source

_SECONDS = 120  # to import torch, start CUDA and compute for a moment
_FILENAME = "your answer"


class Probed(NamedTuple):
    """What one process found. problem: why there is no result, or ""."""

    result: Any
    problem: str


def no_gpu() -> str | None:
    """Why nothing can be run on a GPU here, or None."""
    import torch

    return None if torch.cuda.is_available() else "no GPU"


def with_gpu_check(exercise: Exercise, source: str, grade: Grade) -> Grade:
    """The grade of an answer that passes on the CPU, with what a GPU says, or that none was asked.

    Without a GPU the state is "partial", and the message names the check that was not run.
    """
    if exercise.gpu is None or grade.state != "pass":
        return grade
    reason = no_gpu()
    if reason is None:
        control = _control(exercise.id)
        reason = control.problem
        if not reason:
            return _judged(exercise, grade, control.result, _probe(exercise, source, "cuda"))
    checks = (*grade.checks, Check(exercise.gpu_check, None, shorten(reason)))
    remark = grade.message.partition(". ")[2]
    message = f"passes all that this machine can run; not run: {exercise.gpu_check} ({reason})."
    message = shorten(f"{message} {remark}")
    return Grade(exercise.id, "partial", grade.points, message, checks, grade.output)


def _judged(exercise: Exercise, grade: Grade, expected: Any, found: Probed) -> Grade:
    name = exercise.gpu_check
    if not found.problem and found.result == expected:
        checks = (*grade.checks, Check(name, True))
        message = shorten(f"{name}: the same numbers as on the CPU. {grade.message}")
        return Grade(exercise.id, "pass", grade.points, message, checks, grade.output)
    what = found.problem or "other numbers than on the CPU"
    message = shorten(f"{name}: {what}. See {exercise.where}.")
    checks = (*grade.checks, Check(name, False, message))
    return Grade(exercise.id, "fail", 0, message, checks, grade.output)


@functools.cache
def _control(exercise_id: str) -> Probed:
    """The library's result, the same on CPU and GPU; a problem when it is not."""
    exercise = exercises[exercise_id]
    source = solution_source(exercise)
    on_cpu, on_gpu = (_probe(exercise, source, device) for device in ("cpu", "cuda"))
    if on_cpu.problem:
        raise CourseError(f"exercise {exercise_id}: the probe fails on the CPU: {on_cpu.problem}")
    if on_gpu.problem or on_gpu.result != on_cpu.result:
        why = on_gpu.problem or "other numbers than on the CPU"
        return Probed(None, f"the library's own function does not run on this GPU: {why}")
    return on_cpu


def _probe(exercise: Exercise, source: str, device: str) -> Probed:
    """Run `exercise.gpu` on a text's function in a fresh interpreter."""
    import nanoengine

    home = str(Path(nanoengine.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    with tempfile.TemporaryDirectory(prefix="nanoengine-gpu-") as folder:
        target = Path(folder) / "result.json"
        task = {"exercise": exercise.id, "source": source, "device": device, "to": str(target)}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "nanoengine.course.gpu"],
                input=json.dumps(task),
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Probed(None, f"not done after {_SECONDS} seconds")
        if done.returncode or not target.exists():
            words = done.stderr.strip().splitlines()
            return Probed(None, words[-1][:200] if words else f"exit status {done.returncode}")
        return Probed(json.loads(target.read_text(encoding="utf-8")), "")


def _main() -> None:
    task = json.loads(sys.stdin.read())
    exercise = exercises[task["exercise"]]
    assert exercise.gpu is not None
    function = run_source(task["source"], _FILENAME)[exercise.function]
    result = exercise.gpu(function, task["device"])
    Path(task["to"]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    _main()
