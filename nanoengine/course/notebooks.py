"""Lesson notebooks as files: stubs in their exercise cells, and a copy for students."""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nanoengine.course.errors import CourseError
from nanoengine.course.registry import Exercise, exercises
from nanoengine.course.source import MAGIC, is_empty, same_code
from nanoengine.course.stubs import solution_source, stub

_KEY = "nanoengine"  # in a cell's metadata: {"stub": hash of the stub that was written}
_SKIPPED = ("work", "__pycache__", ".ipynb_checkpoints")


@dataclass(slots=True)
class SyncReport:
    """Exercise ids whose cells were in step, were (or have to be) written, or were refused."""

    in_step: list[str] = field(default_factory=list)
    drifted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{len(self.in_step)} in step"]
        if self.drifted:
            parts.append(f"stub written or due: {', '.join(self.drifted)}")
        if self.refused:
            parts.append(f"left alone, someone changed it: {', '.join(self.refused)}")
        return "; ".join(parts)


def read_notebook(path: Path) -> dict[str, Any]:
    """A notebook's JSON. Raises CourseError when it is none."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CourseError(f"{path} is no notebook ({error})") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise CourseError(f"{path} is no notebook: it has no cells")
    for number, cell in enumerate(notebook["cells"], 1):
        if not _is_cell(cell):
            raise CourseError(f"{path}: cell {number} is damaged: take the notebook anew")
    return notebook


def write_notebook(path: Path, notebook: dict[str, Any]) -> None:
    """Write a notebook as Jupyter does, so that differences stay small."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def exercise_cells(notebook: dict[str, Any]) -> list[tuple[Exercise, dict[str, Any]]]:
    """The cells that begin with `%%exercise ID`. Raises CourseError for an unknown or double id."""
    found: list[tuple[Exercise, dict[str, Any]]] = []
    for cell in notebook["cells"]:
        text = _source(cell)
        if cell.get("cell_type") == "code" and text.startswith(MAGIC):
            exercise = exercises[text.splitlines()[0].removeprefix(MAGIC).strip()]
            if exercise.id in {other.id for other, _ in found}:
                raise CourseError(f"two cells are for exercise {exercise.id}: keep one")
            found.append((exercise, cell))
    return found


def cell_text(exercise: Exercise, body: str) -> str:
    """An exercise cell: the magic's line, then the body."""
    return f"{MAGIC} {exercise.id}\n{body}".rstrip("\n")


def sync(path: Path, write: bool = True) -> SyncReport:
    """Bring a notebook's exercise cells in step with the library's signatures and docstrings.

    A cell is rewritten only when it is empty or still is what an earlier `sync` wrote; one that
    someone changed is refused. write=False only looks.
    """
    notebook, report = read_notebook(path), SyncReport()
    for exercise, cell in exercise_cells(notebook):
        wanted, text = cell_text(exercise, stub(exercise)), _source(cell)
        metadata = cell.setdefault("metadata", {})
        written = metadata.get(_KEY, {}).get("stub")
        body = text.partition("\n")[2]
        if text == wanted and written == _hash(wanted):
            report.in_step.append(exercise.id)
        elif text == wanted or is_empty(body) or written == _hash(text):
            report.drifted.append(exercise.id)
            cell["source"] = wanted.splitlines(keepends=True)
            metadata[_KEY] = {"stub": _hash(wanted)}
        else:
            report.refused.append(exercise.id)
    if write and report.drifted:
        write_notebook(path, notebook)
    return report


def fill(notebook: dict[str, Any]) -> dict[str, Any]:
    """A copy with every exercise cell filled from the library: for tests of the solved lesson."""
    filled: dict[str, Any] = json.loads(json.dumps(notebook))
    for exercise, cell in exercise_cells(filled):
        text = cell_text(exercise, solution_source(exercise))
        cell["source"] = text.splitlines(keepends=True)
    return filled


def release(lessons: Path, target: Path) -> list[str]:
    """Copy the lessons for students: stubs in the cells, no outputs, nobody's answers.

    Raises CourseError when the target exists, a cell is not in step, or a solution is in the copy.
    """
    if target.exists():
        raise CourseError(f"{target} exists: name a new folder")
    if not lessons.is_dir():
        raise CourseError(f"there is no folder {lessons}: give it with --lessons")
    for path in sorted(lessons.glob("*.ipynb")):
        report = sync(path, write=False)
        if report.drifted or report.refused:
            raise CourseError(f"{path}: {report}; run `nanoengine lessons sync` first")
    shutil.copytree(lessons, target, ignore=shutil.ignore_patterns(*_SKIPPED))
    for path in sorted(target.glob("*.ipynb")):
        notebook = read_notebook(path)
        _refuse_solutions(path, notebook)
        write_notebook(path, without_outputs(notebook))
    return sorted(p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file())


def without_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with its outputs and execution counts removed."""
    for cell in notebook["cells"]:
        if cell.get("cell_type") == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return notebook


def _refuse_solutions(path: Path, notebook: dict[str, Any]) -> None:
    for exercise, cell in exercise_cells(notebook):
        if same_code(_source(cell).partition("\n")[2], solution_source(exercise)):
            raise CourseError(f"{path}: the cell of {exercise.id} holds the solution")


def _is_cell(cell: object) -> bool:
    if not isinstance(cell, dict):
        return False
    source, metadata = cell.get("source", ""), cell.get("metadata", {})
    lines = source if isinstance(source, list) else [source]
    whole = isinstance(metadata, dict) and isinstance(metadata.get(_KEY, {}), dict)
    return whole and all(isinstance(line, str) for line in lines)


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return "".join(source)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
