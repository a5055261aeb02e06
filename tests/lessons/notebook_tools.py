"""The lessons' notebooks as tests see them: cells, texts, and an execution in a real kernel."""

import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nanoengine.course.notebooks import fill, read_notebook

ROOT = Path(__file__).parent.parent.parent
LESSONS = ROOT / "lessons"
NOTEBOOKS = sorted(LESSONS.glob("[0-9][0-9]_*.ipynb"))
CELL_SECONDS = 240  # a stuck cell, on a busy machine
_NUMBER = re.compile(r"(?<![\w.,#])\d[\d,]*(?:\.\d+)?(?!\w)")


@dataclass(frozen=True)
class Lesson:
    """One notebook file."""

    path: Path

    def __str__(self) -> str:
        return self.path.stem

    @cached_property
    def notebook(self) -> dict[str, Any]:
        """The JSON as it is committed."""
        return read_notebook(self.path)

    @property
    def number(self) -> str:
        """The lesson's number, "01"."""
        return self.path.name[:2]

    def texts(self, kind: str) -> list[str]:
        """The sources of all cells of a kind, "markdown" or "code"."""
        return [source(c) for c in self.notebook["cells"] if c["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    """A cell's text, however it is stored."""
    text = cell["source"]
    return "".join(text) if isinstance(text, list) else str(text)


def execute(lesson: Lesson, solved: bool, work: Path) -> dict[str, Any]:
    """Run a notebook from top to bottom in a fresh kernel; returns it with its outputs.

    solved: with every exercise cell filled from the library. work: the student's work folder.
    """
    import nbformat
    from nbclient import NotebookClient

    cells = fill(lesson.notebook) if solved else lesson.notebook
    notebook = nbformat.reads(json.dumps(cells), as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(LESSONS)}},
    )
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "NANOENGINE_WORK": str(work),
        "NANOENGINE_STUDENT": "a student",
        "PYTHONWARNINGS": "default",
    }
    client.execute(env=environment)
    return notebook  # type: ignore[no-any-return]


def outputs(cell: dict[str, Any]) -> list[str]:
    """What a cell showed, as plain text and HTML."""
    found = []
    for output in cell.get("outputs", []):
        found.append(str(output.get("text", "")))
        found += [str(part) for part in output.get("data", {}).values()]
    return found


def numbers(text: str) -> set[str]:
    """Numbers of two and more digits in a text; but for links, versions, issues and lessons.

    >>> sorted(numbers("28 MiB, 9,216 tokens, PR #213, 0.25, a 7"))
    ['0.25', '28', '9216']
    """
    text = re.sub(r"\]\([^)]*\)|https?://\S+|\d+\.\d+\.\d+|[Ll]essons? \d\d", " ", text)
    found = {match.replace(",", "") for match in _NUMBER.findall(text)}
    return {number for number in found if sum(c.isdigit() for c in number) > 1}
