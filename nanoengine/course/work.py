"""The student's own files: answers, their last versions, and what was graded and answered.

lessons/work/01_slot_mapping.py      the answer that is graded
lessons/work/versions/01_slot_mapping/0007.py
lessons/work/student.txt             the name that questions draw their numbers from
lessons/work/answers.json, grades.json
"""

import hashlib
import json
import os
import secrets
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from nanoengine.course.errors import CourseError
from nanoengine.course.registry import Exercise
from nanoengine.course.result import Grade
from nanoengine.course.source import clean, read_source

WORK_VARIABLE, STUDENT_VARIABLE = "NANOENGINE_WORK", "NANOENGINE_STUDENT"
KEPT_VERSIONS = 10
_LESSONS = "lessons"


class HasId(Protocol):
    """What a grade belongs to: an exercise, or the capstone."""

    @property
    def id(self) -> str:
        """`01.slot_mapping`."""
        ...


def is_lessons_folder(folder: Path) -> bool:
    """Whether a folder holds the lessons: numbered notebooks, or the grader's conftest.py."""
    if any(folder.glob("[0-9][0-9]_*.ipynb")):
        return True
    return folder.name == _LESSONS and (folder / "conftest.py").is_file()


def work_folder(start: Path) -> Path:
    """Where answers are kept: $NANOENGINE_WORK, or `work/` in the lessons folder.

    The lessons folder is looked for from `start`, a notebook's folder, upwards; a `lessons`
    folder beside one of the parents counts, too. Without any: `work/` in `start` itself.
    """
    named = os.environ.get(WORK_VARIABLE)
    if named:
        return Path(named).expanduser()
    for folder in (start, *start.parents):
        for candidate in (folder, folder / _LESSONS):
            if is_lessons_folder(candidate):
                return candidate / "work"
    return start / "work"


class Work:
    """One student's work folder; nothing is written before something is saved."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, exercise: Exercise) -> Path:
        """Where an exercise's answer is."""
        return self.folder / exercise.filename

    def load(self, exercise: Exercise) -> str | None:
        """The saved answer, None when there is none. Raises CourseError for unreadable text."""
        path = self.path(exercise)
        return read_source(path) if path.is_file() else None

    def saved_at(self, exercise: Exercise) -> str:
        """When the answer was saved, `2026-01-31 12:05`."""
        stamp = self.path(exercise).stat().st_mtime
        return datetime.fromtimestamp(stamp).strftime("%Y-%m-%d %H:%M")

    def save(self, exercise: Exercise, text: str) -> Path:
        """Keep an answer; the last ten different versions stay in `versions/`."""
        path, text = self.path(exercise), clean(text)
        if path.is_file():
            if path.read_bytes() == text.encode():
                return path
            self._keep(exercise, path.read_bytes())
        self._keep(exercise, text.encode())
        _write(path, text.encode())
        return path

    def versions(self, exercise: Exercise) -> list[Path]:
        """The kept versions, oldest first."""
        folder = self.folder / "versions" / Path(exercise.filename).stem
        return sorted(p for p in folder.glob("*.py") if p.stem.isdecimal() and p.is_file())

    def _keep(self, exercise: Exercise, data: bytes) -> None:
        """Add a version unless it is the newest already (an edited file was not kept yet)."""
        versions = self.versions(exercise)
        if versions and versions[-1].read_bytes() == data:
            return
        number = int(versions[-1].stem) + 1 if versions else 1
        folder = self.folder / "versions" / Path(exercise.filename).stem
        _write(folder / f"{number:04d}.py", data)
        for old in self.versions(exercise)[:-KEPT_VERSIONS]:
            old.unlink()

    # -- grades and answers --------------------------------------------------------------------

    def known_grade(self, exercise: HasId, text: str) -> Grade | None:
        """The grade this very text got from this very library, if it was graded before."""
        entry = self._read("grades.json").get(exercise.id)
        if not isinstance(entry, dict) or entry.get("key") != _key(text):
            return None
        try:
            return Grade.from_dict(entry["grade"])
        except (KeyError, TypeError):  # written by another version
            return None

    def remember(self, text: str, grade: Grade) -> None:
        """Keep a grade for `known_grade`."""
        entry = {"key": _key(text), "grade": grade.to_dict()}
        self._update("grades.json", grade.id, entry)

    @property
    def student(self) -> str:
        """The name that questions draw their numbers from: $NANOENGINE_STUDENT, or a kept one."""
        named = os.environ.get(STUDENT_VARIABLE)
        if named:
            return named
        path = self.folder / "student.txt"
        if not path.is_file():
            _write(path, f"{secrets.token_hex(4)}\n".encode())
        return path.read_text(encoding="utf-8", errors="replace").strip()

    def answers(self) -> dict[str, Any]:
        """Given answers by question id, as plain data."""
        return self._read("answers.json")

    def remember_answer(self, question_id: str, answer: Any) -> None:
        """Keep an answer to a question."""
        self._update("answers.json", question_id, answer)

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        if not path.is_file():
            return {}
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise CourseError(
                f"{path} is damaged ({error}): delete it, then run the cells again"
            ) from None
        if not isinstance(values, dict):
            raise CourseError(f"{path} holds no object: delete it, then run the cells again")
        return values

    def _update(self, name: str, key: str, value: Any) -> None:
        values = {**self._read(name), key: value}
        _write(self.folder / name, (json.dumps(values, indent=1) + "\n").encode())


def _key(text: str) -> str:
    """Names a text together with the library that graded it."""
    from nanoengine.course.grading import library_state

    return hashlib.sha256(f"{library_state()}\n{clean(text)}".encode()).hexdigest()


def _write(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all. Raises CourseError when it cannot be written."""
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        raise CourseError(
            f"{path} cannot be written ({error}): make room, or free its name"
        ) from None
