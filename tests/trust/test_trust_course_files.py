"""Notebooks and the files of lessons/work/ in any state: they work, or one error names the file.

Course kits lose work here: nbgrader #1083, #1331 (copied and deleted cells), cs249r_book #1508 (the
solution in the student's copy), jupytext #63 (a stale file overwrites), otter #793.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz_tools import attempt, damaged_bytes, damaged_json, examples
from hypothesis import given
from hypothesis import strategies as st

from nanoengine.course import exercises
from nanoengine.course.errors import CourseError
from nanoengine.course.notebooks import exercise_cells, fill, read_notebook, sync, without_outputs
from nanoengine.course.result import Grade
from nanoengine.course.work import Work

ID = "01.slot_mapping"
EXERCISE = exercises[ID]
ANSWER = "def slot_mapping(block_table, start, end, block_size):\n    return []\n"
LESSON = Path(__file__).parents[2] / "lessons" / "01_tensorization.ipynb"


def test_notebooks(tmp_path: Path) -> None:
    path = tmp_path / "01_x.ipynb"
    text = LESSON.read_text(encoding="utf-8")
    notebook = json.loads(text)
    notebook["cells"] = [
        cell for cell in notebook["cells"] if "".join(cell["source"]).startswith("%%exercise")
    ] + notebook["cells"][:3]
    odd = ["%%exercise", "%%exercise 99.nope", f"%%exercise {ID}\n", ["%%exercise\n", 5], ANSWER]
    whole = json.dumps(notebook).encode()
    seen: Counter[str] = Counter()
    uses: dict[str, Callable[[], Any]] = {
        "sync": lambda: sync(path),
        "cells": lambda: exercise_cells(read_notebook(path)),
        "outputs": lambda: without_outputs(read_notebook(path)),
        "fill": lambda: fill(read_notebook(path)),
    }

    @examples(250)
    @given(damaged_bytes(whole) | damaged_json(notebook, odd, ["cells"]).map(str.encode))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        for use in uses.values():
            _, message = attempt(use)
            seen["refused" if message else "read"] += 1
            assert message is None or path.name in message or "exercise" in message
        # nothing but sync writes, and it writes a notebook
        assert path.read_bytes() == data or read_notebook(path)

    check()
    assert min(seen["refused"], seen["read"]) > 50, seen


@pytest.fixture
def whole_work(tmp_path: Path) -> Work:
    """A work folder with one of everything."""
    work = Work(tmp_path / "whole")
    work.save(EXERCISE, ANSWER)
    work.save(EXERCISE, ANSWER.replace("[]", "[1]"))
    work.remember(ANSWER, Grade(ID, "pass", 1, "message"))
    work.remember_answer("01.q.slots", [1, 2])
    assert work.student
    return work


def test_files_of_the_work_folder(tmp_path: Path, whole_work: Work) -> None:
    names = sorted(str(p.relative_to(whole_work.folder)) for p in whole_work.folder.rglob("*.*"))
    work = Work(tmp_path / "work")
    uses: dict[str, Callable[[], Any]] = {
        "load": lambda: work.load(EXERCISE),
        "known grade": lambda: work.known_grade(EXERCISE, ANSWER),
        "student": lambda: work.student,
        "answers": lambda: work.answers(),
        "save": lambda: work.save(EXERCISE, "y = 1\n"),
        "remember": lambda: work.remember("y", Grade(ID, "pass", 1, "m")),
        "remember answer": lambda: work.remember_answer("a", 1),
    }
    seen: Counter[str] = Counter()

    def damages(name: str) -> st.SearchStrategy[tuple[str, bytes | None]]:
        data = (whole_work.folder / name).read_bytes()
        found: st.SearchStrategy[bytes | None] = st.none() | damaged_bytes(data)
        if name.endswith(".json"):
            found = found | damaged_json(json.loads(data), [], [ID]).map(str.encode)
        return st.tuples(st.just(name), found)

    @examples(200)
    @given(st.sampled_from(names).flatmap(damages))
    def check(case: tuple[str, bytes | None]) -> None:
        shutil.rmtree(work.folder, ignore_errors=True)
        shutil.copytree(whole_work.folder, work.folder)
        path = work.folder / case[0]
        if case[1] is None:  # a folder has its name
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(case[1])
        messages: dict[str, str | None] = {}
        for name, use in uses.items():
            _, message = attempt(use)
            messages[name] = message
            seen[f"{name}: {'refused' if message else 'done'}"] += 1
            assert message is None or path.name in message or "grades" in message, message
        if path.name != EXERCISE.filename:  # saved, or said so and still there as it was
            kept = "y = 1\n" if messages["save"] is None else whole_work.load(EXERCISE)
            assert work.load(EXERCISE) == kept

    check()
    assert seen["answers: refused"] > 10
    assert seen["load: refused"] > 10


def test_a_list_where_answers_belong_is_not_overwritten(tmp_path: Path) -> None:
    """Read as "nothing there", it would be lost with the next answer."""
    work = Work(tmp_path)
    (tmp_path / "answers.json").write_text("[1]")
    with pytest.raises(CourseError, match=r"answers\.json holds no object: delete it"):
        work.remember_answer("a", 1)
    assert (tmp_path / "answers.json").read_text() == "[1]"


def test_a_full_disk_keeps_the_old_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(tmp_path)
    work.save(EXERCISE, ANSWER)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CourseError, match=r"cannot be written.*No space left.*make room"):
        work.save(EXERCISE, "x = 1\n")
    assert work.load(EXERCISE) == ANSWER
