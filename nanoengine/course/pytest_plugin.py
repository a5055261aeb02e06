"""`pytest lessons/`: grade the saved answers, each in a process of its own.

lessons/conftest.py imports the hooks from here. An exercise that nobody attempted is skipped, so
a fresh checkout is green; `--strict-todo` makes it a failure, `--report FILE` writes the grades.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nanoengine.course.capstone_grade import CAPSTONE, Capstone, grade_capstone
from nanoengine.course.display import Row, table
from nanoengine.course.errors import CourseError
from nanoengine.course.grading import grade, stop_server
from nanoengine.course.quiz import Question
from nanoengine.course.registry import Exercise, exercises, questions
from nanoengine.course.result import Grade
from nanoengine.course.source import read_source
from nanoengine.course.work import Work, work_folder

_PROPERTY = "nanoengine_grade"
_TODO = "not attempted"
Entry = Exercise | Question | Capstone

__all__ = [
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_terminal_summary",
    "pytest_unconfigure",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--strict-todo` and `--report`."""
    group = parser.getgroup("nanoengine lessons")
    group.addoption("--strict-todo", action="store_true", help="not attempted is a failure")
    group.addoption("--report", metavar="FILE", help="write the grades as JSON")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A lesson's notebook stands for its exercises; conftest.py for lessons without notebook."""
    if file_path.suffix == ".ipynb" and file_path.name[:2].isdigit():
        return LessonFile.from_parent(parent, path=file_path)
    if file_path.name == "conftest.py" and file_path.parent.name != "work":
        return LessonFile.from_parent(parent, path=file_path)
    return None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table of grades, and the report file."""
    entries: list[dict[str, Any]] = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            entries += [v for k, v in getattr(report, "user_properties", []) if k == _PROPERTY]
    if not entries:
        return
    entries = list({entry["id"]: entry for entry in entries}.values())
    entries.sort(key=lambda entry: [*exercises, CAPSTONE.id, *questions].index(entry["id"]))
    rows = [Row(e["id"], e["state"], e["points"], e["of"], e["path"]) for e in entries]
    terminalreporter.section("lessons")
    terminalreporter.write_line(str(table(rows, "Lessons")))
    target = config.getoption("--report", default=None)
    if target:
        total = {"points": sum(r.points for r in rows), "of": sum(r.of for r in rows)}
        text = json.dumps({"grades": entries, "total": total}, indent=1)
        Path(target).write_text(text + "\n", encoding="utf-8")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the grading server."""
    stop_server()


class LessonFile(pytest.File):
    """The exercises and questions of one lesson, and the capstone in its own."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item for each exercise, then for each question."""
        work = Work(work_folder(self.path.parent))
        entries: list[Entry] = [*exercises.values(), CAPSTONE, *questions.values()]
        for entry in entries:
            if self._is_mine(entry.id.partition(".")[0]):
                yield GradeItem.from_parent(self, name=entry.id, entry=entry, work=work)

    def _is_mine(self, lesson: str) -> bool:
        if self.path.suffix == ".ipynb":
            return self.path.name.startswith(f"{lesson}_")
        return not any(self.path.parent.glob(f"{lesson}_*.ipynb"))


class GradeItem(pytest.Item):
    """One answer to be graded."""

    def __init__(self, *, entry: Entry, work: Work, **options: Any) -> None:
        super().__init__(**options)
        self.entry, self.work = entry, work

    def runtest(self) -> None:
        """Grade; todo skips, fail fails with one line."""
        try:
            result, path = self._graded()
        except CourseError as error:
            result, path = Grade(self.entry.id, "fail", 0, str(error)), self.work.folder
        entry = {**result.to_dict(), "of": self.entry.points, "path": str(path)}
        entry.pop("detail")
        self.user_properties.append((_PROPERTY, entry))
        if result.state == "todo":
            if self.config.getoption("--strict-todo", default=False):
                pytest.fail(f"TODO {result.id}: {_TODO} ({path})", pytrace=False)
            pytest.skip(_TODO)
        if result.state == "fail":
            pytest.fail(f"{result}\n({path})", pytrace=False)

    def _graded(self) -> tuple[Grade, Path]:
        if isinstance(self.entry, Capstone):
            return grade_capstone(self.work, fresh=True), self.work.folder
        if not isinstance(self.entry, Exercise):
            path = self.work.folder / "answers.json"
            given = self.work.answers()
            if self.entry.id not in given:
                return Grade(self.entry.id, "todo", 0, _TODO), path
            return self.entry.check(self.work.student, given[self.entry.id]), path
        path = self.work.path(self.entry)
        text = read_source(path) if path.is_file() else ""
        return grade(self.entry.id, text), path

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """What pytest calls this item."""
        return self.path, None, self.name
