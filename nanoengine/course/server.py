"""The grading server: a quiet process that knows the right answers and never runs a student's.

It reads tasks as JSON lines from its input and writes grades as JSON lines to its output. Each
answer runs in a child of its own: forked where the system can, so that torch is loaded only
once, started afresh elsewhere.
"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, NamedTuple

from nanoengine.course import child, limits
from nanoengine.course.errors import CourseError
from nanoengine.course.registry import Exercise, exercises
from nanoengine.course.result import Grade
from nanoengine.course.stubs import is_stub
from nanoengine.course.words import DESCRIPTOR_CLOSED, ended_early

_POLL_SECONDS = 0.003
_GRACE_SECONDS = 1.0  # between a child's own clock and ending it from here
_IMPORT_SECONDS = 60  # that a fresh interpreter may need for torch
TODO = "not attempted: the cell still holds the stub."


class Ended(NamedTuple):
    """How a child ended. status: exit status, negative for a signal, None when its time was up."""

    status: int | None
    result: bytes
    output: str
    trace: str


def grade_here(exercise: Exercise, source: str, folder: Path, fork: bool) -> Grade:
    """Run an answer in a child process and judge what it did."""
    from nanoengine.course.judge import expected_behaviour, expected_results, failed, judge
    from nanoengine.course.scenarios import SCENARIOS

    if is_stub(exercise, source):
        return Grade(exercise.id, "todo", 0, TODO)
    expected_results(exercise)  # before the fork, so that it happens once
    for name in exercise.scenarios:
        if SCENARIOS[name].missing() is None:
            expected_behaviour(name, folder)
    key = secrets.token_hex(16).encode()
    task = child.Task(exercise.id, source, str(folder), fork)
    ended = _forked(task, key) if fork else _spawned(task, key, folder)
    output = ended.output[: limits.OUTPUT_CHARS]
    _, found, observed = ended.result.rpartition(key)
    if not found:
        last = ended.trace.strip().rpartition("\n")[2]
        raise CourseError(f"the process for the answer did not start ({last}): try again")
    try:
        seen = json.loads(observed)
    except ValueError:
        return failed(exercise, _why_no_result(ended, source), output)
    return judge(exercise, source, seen, output, folder)


def _why_no_result(ended: Ended, source: str) -> str:
    if ended.status == child.RESULT_LOST:
        return DESCRIPTOR_CLOSED
    name = ""
    if ended.status is not None and ended.status < 0:
        name = signal.Signals(-ended.status).name
    out_of_time = ended.status is None or ended.trace.startswith("Timeout (")
    return ended_early(out_of_time, name, ended.trace, source)


def _forked(task: child.Task, key: bytes) -> Ended:
    """Run `child.main` in a copy of this process; its files have no name in the file system."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        result, output, trace = files
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                os.dup2(output.fileno(), 1)
                os.dup2(trace.fileno(), 2)
                _close_all_but(0, 1, 2, result.fileno())
                child.main(task, result.fileno(), key)
            finally:
                os._exit(1)
        try:
            status = _wait(pid)
        finally:  # the answer itself, if the server has to end, and what it started
            _end_group(pid)
        return Ended(status, _content(result), _text(output), _text(trace))


def _end_group(pid: int) -> None:
    """End every process of an answer's own session (there is none on Windows)."""
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _close_all_but(*kept: int) -> None:
    """Close the server's own channel: an answer must not be able to speak for it."""
    top = 1 + max(kept)
    for number in range(3, top):
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)
    os.closerange(top, 4096)


def _wait(pid: int) -> int | None:
    """Exit status of a child; None when its time was up and it had to be ended."""
    deadline = time.monotonic() + limits.WALL_SECONDS + _GRACE_SECONDS
    ended = False
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return None if ended else os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline and not ended:
            os.kill(pid, signal.SIGKILL)
            ended = True
        time.sleep(_POLL_SECONDS)


def _spawned(task: child.Task, key: bytes, folder: Path) -> Ended:
    """Run `child.main` in a fresh interpreter: slower, and works on every system."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        paths = [Path(name) / part for part in ("result", "output", "trace")]
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            process = subprocess.Popen(
                [sys.executable, "-m", "nanoengine.course.server", "--child", str(paths[0])],
                stdin=subprocess.PIPE,
                stdout=files[1],
                stderr=files[2],
                start_new_session=True,
                env=environment(),
            )
            message = json.dumps({"task": task._asdict(), "key": key.decode()})
            status: int | None = None
            patience = _IMPORT_SECONDS + limits.WALL_SECONDS + _GRACE_SECONDS
            try:
                process.communicate(message.encode(), timeout=patience)
                status = process.returncode
            except subprocess.TimeoutExpired:
                pass
            finally:
                process.kill()
                _end_group(process.pid)
                process.wait()
        return Ended(
            status, paths[0].read_bytes(), *(_decoded(path.read_bytes()) for path in paths[1:])
        )


def environment() -> dict[str, str]:
    """This process's environment for a grading process: one thread, the same nanoengine."""
    import nanoengine

    home = str(Path(nanoengine.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONHASHSEED": "0",
        "TRITON_INTERPRET": "1",  # kernels are graded on the CPU; read when one is decorated
    }


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _text(file: IO[bytes]) -> str:
    return _decoded(_content(file))


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")


def can_fork() -> bool:
    """Whether answers run in forked children: Linux only (elsewhere torch and fork do not mix)."""
    return sys.platform == "linux" and os.environ.get("NANOENGINE_GRADER") != "spawn"


def serve(requests: IO[str], replies: IO[str]) -> None:
    """Answer tasks until the input ends."""
    import torch

    from nanoengine.course import tiny

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # tidy up also then
    torch.set_num_threads(1)  # before any work: forking a process with more threads can hang
    with tempfile.TemporaryDirectory(prefix="nanoengine-grader-") as name:
        folder = tiny.save_model(Path(name))
        for line in requests:
            task = json.loads(line)
            reply: dict[str, Any]
            try:
                exercise = exercises[task["exercise"]]
                fork = can_fork() and not task.get("spawn", False)
                reply = {"grade": grade_here(exercise, task["source"], folder, fork).to_dict()}
            except Exception as error:  # the grader's own fault: say so, and stay alive
                reply = {"error": f"{type(error).__name__}: {error}"}
            replies.write(json.dumps(reply) + "\n")
            replies.flush()


def _child_main(path: str) -> None:
    """A fresh interpreter's way into `child.main`."""
    message = json.loads(sys.stdin.read())
    result = os.open(path, os.O_WRONLY | os.O_CREAT)
    child.main(child.Task(**message["task"]), result, message["key"].encode())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child_main(sys.argv[2])
    else:
        own_output = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # nothing else may write between the replies
        serve(sys.stdin, own_output)
