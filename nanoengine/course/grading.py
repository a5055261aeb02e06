"""grade: hand an answer to the grading server, starting it when there is none."""

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nanoengine
from nanoengine.course.errors import CourseError
from nanoengine.course.gpu import with_gpu_check
from nanoengine.course.registry import exercises
from nanoengine.course.result import Grade
from nanoengine.course.server import TODO, environment
from nanoengine.course.source import clean
from nanoengine.course.stubs import is_stub

_PATIENCE_SECONDS = 2.0
_NOT_GRADED = ("classroom", "viz")  # packages that no grade depends on


def grade(exercise_id: str, source: str, *, spawn: bool = False) -> Grade:
    """Grade an answer, given as source text; it runs in a process of its own, with limits.

    The first call starts the grading server (a few seconds, it imports torch); later ones take
    about a second. spawn: start a fresh interpreter for the answer even where forking works.

    Raises CourseError for an unknown exercise, or when the grader itself fails.
    """
    exercise = exercises[exercise_id]
    text = clean(source)
    if is_stub(exercise, text):
        return Grade(exercise.id, "todo", 0, TODO)
    missing = exercise.missing()
    if missing is not None:
        message = f"nothing was run: this machine lacks {missing}. Hand it in where there is one."
        return Grade(exercise.id, "partial", 0, message)
    return with_gpu_check(exercise, text, _server().grade(exercise_id, text, spawn))


class GradingServer:
    """A running server process; it ends with this one, or by `close`."""

    def __init__(self) -> None:
        self.library = library_state()
        self.owner = os.getpid()
        # not a pipe: one that nobody reads fills up, and its writer waits
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nanoengine.course.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env=environment(),
            start_new_session=True,  # Ctrl-C in a notebook or terminal is not meant for it
        )

    @property
    def usable(self) -> bool:
        """Alive, ours, and started from the library's present files."""
        return (
            self._process.poll() is None
            and self.owner == os.getpid()
            and self.library == library_state()
        )

    def grade(self, exercise_id: str, source: str, spawn: bool) -> Grade:
        """Send one task and wait for its grade."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        task = {"exercise": exercise_id, "source": source, "spawn": spawn}
        try:
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BaseException:  # a broken pipe, or Ctrl-C: a late answer must not be taken for
            self.close()  # that of the next task
            raise
        if not line:
            raise CourseError(f"the grader ended unexpectedly: {self._last_words()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise CourseError(f"the grader itself failed on {exercise_id}: {reply['error']}")
        return Grade.from_dict(reply["grade"])

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it left no message"

    def close(self) -> None:
        """End the server."""
        if self.owner != os.getpid():
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # the end of its input: it tidies up and ends
        # asked in three ways, each ruder: in the middle of a grade the first is not heard
        for end in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(_PATIENCE_SECONDS)
                break
            except subprocess.TimeoutExpired:
                end()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


_servers: list[GradingServer] = []


def _server() -> GradingServer:
    """The running server, or a new one when there is none or the library was edited."""
    while _servers and not _servers[-1].usable:
        _servers.pop().close()
    if not _servers:
        _servers.append(GradingServer())
    return _servers[-1]


@atexit.register
def stop_server() -> None:
    """End the grading server; the next grade starts another."""
    while _servers:
        _servers.pop().close()


@contextlib.contextmanager
def grading_session() -> Iterator[None]:
    """A `with` block after which no grading process is left."""
    try:
        yield
    finally:
        stop_server()


def library_state() -> tuple[tuple[str, int], ...]:
    """Files of the library and when they were changed: an edit needs a new server."""
    home = Path(nanoengine.__file__).parent
    files = [p for p in home.rglob("*.py") if p.relative_to(home).parts[0] not in _NOT_GRADED]
    return tuple(sorted((str(p), p.stat().st_mtime_ns) for p in files))
