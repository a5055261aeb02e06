"""Grading and swapping on several ranks: the student's function reaches them, nothing is left."""

import multiprocessing
import os
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nanoengine.course import CourseError, exercises, grade, swap
from nanoengine.course.grading import GradingServer
from nanoengine.course.ranks import failure_of
from nanoengine.course.source import run_source
from nanoengine.course.stubs import solution_source
from nanoengine.course.tiny import save_model
from nanoengine.errors import WorkerError
from nanoengine.llm import LLM
from nanoengine.sampling_params import SamplingParams

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm")
READ = "05.read_message"
LOOP = "05.worker_loop"
RIGHT = solution_source(exercises[READ])
# true on a worker: the graded process itself is no child of multiprocessing
ELSEWHERE = "__import__('multiprocessing').parent_process() is not None"


def on_workers(statement: str) -> str:
    """The right answer, which does something else where no contract looks."""
    return RIGHT.replace("    magic, ", f"    if {ELSEWHERE}:\n        {statement}\n    magic, ", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(os.listdir("/dev/shm"))
    yield
    assert not [p for p in multiprocessing.active_children() if "nanoengine" in p.name]
    assert set(os.listdir("/dev/shm")) <= before


def generate(folder: Path, **options: Any) -> list[int]:
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    with LLM(folder, device="cpu", num_kvcache_blocks=8, **options) as llm:
        return llm.generate([[5, 9, 2]], params, use_tqdm=False)[0].token_ids


# -- swap --------------------------------------------------------------------------------------


def test_an_answer_travels_as_its_text(folder: Path) -> None:
    """Its imports and helpers with it: the worker runs the whole answer."""
    marker = "seen = []\n"
    text = RIGHT.replace("def read_message", f"{marker}def read_message")
    text = text.replace("    magic, ", "    seen.append(1)\n    magic, ", 1)
    function = run_source(text, "an answer")["read_message"]
    expected = generate(folder)
    with swap(READ, function):
        assert generate(folder, tensor_parallel_size=2) == expected
    assert not function.__globals__["seen"], "rank 0 does not read messages"


def fail_on_a_worker(receive: Any, handlers: Any) -> None:
    """A function of an importable module travels by its name."""
    raise ValueError("reached the worker")


def test_a_modules_function_travels_by_its_name(folder: Path) -> None:
    with pytest.raises(WorkerError, match="reached the worker"), swap(LOOP, fail_on_a_worker):
        generate(folder, tensor_parallel_size=2)


def test_a_local_function_travels_as_its_text(folder: Path) -> None:
    def local(receive: object, handlers: object) -> None:
        raise ValueError("local, and yet here")

    with pytest.raises(WorkerError, match="local, and yet here"), swap(LOOP, local):
        generate(folder, tensor_parallel_size=2)


def test_what_cannot_travel_is_an_error_that_says_so(folder: Path) -> None:
    built = eval("lambda receive, handlers: None")  # no text anywhere
    with swap(LOOP, built):
        generate(folder)  # one rank: no matter
        with pytest.raises(WorkerError, match=r"05\.worker_loop.*no source text"):
            generate(folder, tensor_parallel_size=2)


def test_running_workers_refuse_a_swap(folder: Path) -> None:
    options: dict[str, Any] = {"num_kvcache_blocks": 8, "tensor_parallel_size": 2}
    with (
        LLM(folder, device="cpu", **options),
        pytest.raises(CourseError, match="workers of an engine that runs"),
        swap(LOOP, print),
    ):
        pass
    with swap(LOOP, print):
        pass


# -- grading -----------------------------------------------------------------------------------


def test_an_exception_on_another_rank_is_told_with_its_line() -> None:
    result = grade(READ, on_workers("raise RuntimeError('only there')"))
    assert result.state == "fail"
    assert "on two ranks" in result.message
    assert "RuntimeError on rank 1: only there, line " in result.message
    assert "`raise RuntimeError('only there')`" in result.message
    assert "process" not in result.message, "a process's number is another one every time"


@pytest.mark.parametrize(
    "exercise_id",
    [name for name in exercises if name.startswith("05.") and name != "05.write_message"],
)
def test_every_function_runs_on_the_other_rank(exercise_id: str) -> None:
    """But for writing, which is rank 0's alone."""
    name = exercises[exercise_id].function
    wrapped = f"""

own = {name}

def {name}(*args, **options):
    if {ELSEWHERE}:
        raise IndexError("only there")
    return own(*args, **options)
"""
    result = grade(exercise_id, solution_source(exercises[exercise_id]) + wrapped)
    assert "IndexError on rank 1: only there" in result.message


def test_a_worker_that_hangs_is_told() -> None:
    result = grade(READ, on_workers("__import__('time').sleep(60)"))
    assert result.state == "fail"
    assert "rank 1 hangs" in result.message


def test_a_worker_that_ends_is_told() -> None:
    result = grade(READ, on_workers("__import__('os')._exit(7)"))
    assert "rank 1 ended with exit code 7" in result.message


def test_what_another_rank_prints_is_shown() -> None:
    result = grade(READ, on_workers("print('read on rank 1')"))
    assert result.state == "pass"
    assert "read on rank 1" in result.output


def test_a_function_that_never_reaches_the_workers_does_not_pass() -> None:
    """Calls on other ranks count; without any the engine ran on something else."""
    patch = textwrap.dedent(
        """
        import nanoengine.course.swapping as swapping
        swapping.install.__code__ = (lambda exercise, where, calls: None).__code__
        """
    )
    assert grade(LOOP, solution_source(exercises[LOOP]) + patch).state == "fail"


def test_the_same_by_spawned_processes() -> None:
    """As on macOS: fresh interpreters for the answer and for its worker."""
    assert grade(READ, RIGHT, spawn=True).state == "pass"
    wrong = grade(READ, on_workers("raise KeyError('there')"), spawn=True)
    assert "KeyError on rank 1: 'there', line " in wrong.message


def descendants(pid: int) -> list[int]:
    """Processes below one, zombies included."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found, todo = [], [pid]
    while todo:
        new = children.get(todo.pop(), [])
        found += new
        todo += new
    return found


def test_an_interrupted_grade_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed, as Ctrl-C in a cell does, while rank 1 hangs in the student's function."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    marker = tmp_path / "running"
    hanging = on_workers(f"open({str(marker)!r}, 'w').close(); __import__('time').sleep(60)")
    server = GradingServer()
    waiting = threading.Thread(target=lambda: suppressed(server, hanging))
    waiting.start()
    while not marker.exists():
        time.sleep(0.02)
    below = [server._process.pid, *descendants(server._process.pid)]
    assert len(below) >= 3, "server, graded process, worker"
    server.close()
    waiting.join()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(os.path.exists(f"/proc/{pid}") for pid in below):
        time.sleep(0.05)
    assert not [pid for pid in below if os.path.exists(f"/proc/{pid}")]
    marker.unlink()
    assert not list(tmp_path.iterdir())


def suppressed(server: GradingServer, source: str) -> None:
    with suppress(Exception):
        server.grade(READ, source, False)


def test_other_exceptions_are_left_alone() -> None:
    assert failure_of(ValueError("rank 1 (process 5) raised KeyError: x")) is None
    told = failure_of(WorkerError("rank 2 (process 5) hangs: it did not come", 2))
    assert told is not None
    assert (told["message"], told["line"]) == ("rank 2 hangs: it did not come", 0)
