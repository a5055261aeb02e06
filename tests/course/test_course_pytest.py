"""`pytest lessons/` and `nanoengine lessons`, run as a student runs them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nanoengine.course import CourseError, cli, exercises, questions, stub
from nanoengine.course.notebooks import exercise_cells, fill, read_notebook, release, sync
from nanoengine.course.stubs import solution_source
from nanoengine.course.work import Work

ROOT = Path(__file__).parents[2]
ID = "01.slot_mapping"
EVERYTHING = len(exercises) + len(questions) + 1  # and the capstone


@pytest.fixture
def lessons(tmp_path: Path) -> Path:
    """A copy of the lessons' conftest.py in a folder whose path has a space."""
    folder = tmp_path / "my course" / "lessons"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "lessons" / "conftest.py", folder)
    return folder


def run_pytest(lessons: Path, *options: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NANOENGINE_STUDENT": "ada"}
    command = [sys.executable, "-m", "pytest", str(lessons), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, env=environment, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def test_a_fresh_checkout_is_green(lessons: Path) -> None:
    status, out = run_pytest(lessons)
    assert status == 0, out
    assert f"{EVERYTHING} skipped" in out
    assert "TODO" in out
    assert str(lessons / "work" / "01_slot_mapping.py") in out
    assert not (lessons / "work").exists()


def test_states_paths_and_report(lessons: Path, tmp_path: Path) -> None:
    work = Work(lessons / "work")
    right, wrong = exercises[ID], exercises["01.pad_block_tables"]
    work.path(right).parent.mkdir()
    text = solution_source(right).replace("\n", "\r\n")
    work.path(right).write_bytes(b"\xef\xbb\xbf" + text.encode())
    work.save(wrong, "def pad_block_tables(block_tables):\n    return block_tables\n")
    work.save(exercises["01.prepare_decode"], stub("01.prepare_decode"))
    work.remember_answer("01.q.slots", [1])
    report = tmp_path / "grades.json"
    status, out = run_pytest(lessons, "--report", str(report), "-k", "01.")
    assert status == 1
    assert "Traceback" not in out
    grades = {g["id"]: g for g in json.loads(report.read_text())["grades"]}
    states = {key: entry["state"] for key, entry in grades.items()}
    assert states[ID] == "pass"
    assert states["01.pad_block_tables"] == "fail"
    assert states["01.prepare_decode"] == "todo"
    assert states["01.q.slots"] == "fail"
    assert grades[ID]["points"] == right.points
    assert grades[ID]["path"] == str(work.path(right))
    assert "a tensor needs rows of one length" in out


def test_strict_todo_fails(lessons: Path) -> None:
    status, out = run_pytest(lessons, "--strict-todo", "-k", "slot_mapping")
    assert status == 1
    assert "TODO 01.slot_mapping: not attempted" in out


def test_a_lessons_notebook_stands_for_its_exercises(lessons: Path) -> None:
    notebook = lessons / "01_a lesson.ipynb"
    notebook.write_text('{"cells": []}')
    status, out = run_pytest(notebook)
    mine = [i for i in [*exercises, *questions] if i.startswith("01.")]
    assert status == 0
    assert f"{len(mine)} skipped" in out
    status, out = run_pytest(lessons)
    assert f"{EVERYTHING} skipped" in out, "nothing twice, nothing missing"


# -- nanoengine lessons ------------------------------------------------------------------------


def test_grade_command(
    lessons: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lessons.parent)
    answer = lessons / "mine.py"
    answer.write_text("def slot_mapping(*args):\n    return []\n")
    assert cli.main(["grade", ID, "--file", str(answer)]) == 1
    assert "expected 4 slots" in capsys.readouterr().out
    assert cli.main(["grade", ID, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "todo"
    with pytest.raises(CourseError, match="exactly one"):
        cli.main(["grade", "--file", str(answer)])
    with pytest.raises(CourseError, match="there is no file"):
        cli.main(["grade", ID, "--file", "nowhere.py"])


def notebook_with(*sources: str) -> dict[str, Any]:
    cells = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "source": text, "outputs": [1],
         "execution_count": 1}
        for i, text in enumerate(sources)
    ]  # fmt: skip
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_sync_writes_stubs_and_refuses_changed_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "01_x.ipynb"
    path.write_text(json.dumps(notebook_with(f"%%exercise {ID}", "print(1)")))
    assert sync(path, write=False).drifted == [ID]
    assert sync(path).drifted == [ID]
    assert sync(path).in_step == [ID]
    assert stub(ID).strip() in "".join(read_notebook(path)["cells"][0]["source"])
    monkeypatch.setattr(
        "nanoengine.course.notebooks.stub", lambda e: stub(e).replace("KV-cache", "KV cache")
    )
    assert sync(path).drifted == [ID], "the library changed, nobody touched the cell"
    notebook = read_notebook(path)
    notebook["cells"][0]["source"].append("\n# mine")
    path.write_text(json.dumps(notebook))
    monkeypatch.undo()
    before = path.read_text()
    assert sync(path).refused == [ID]
    assert path.read_text() == before


def test_release_is_clean(lessons: Path, tmp_path: Path) -> None:
    path = lessons / "01_x.ipynb"
    path.write_text(json.dumps(notebook_with(f"%%exercise {ID}", "print(1)")))
    with pytest.raises(CourseError, match="lessons sync"):
        release(lessons, tmp_path / "out")
    sync(path)
    Work(lessons / "work").save(exercises[ID], solution_source(exercises[ID]))
    assert release(lessons, tmp_path / "out") == ["01_x.ipynb", "conftest.py"]
    text = (tmp_path / "out" / "01_x.ipynb").read_text()
    assert "NotAttempted" in text
    assert "position % block_size" not in text
    assert json.loads(text)["cells"][1]["outputs"] == []
    with pytest.raises(CourseError, match="exists"):
        release(lessons, tmp_path / "out")


def test_release_refuses_a_solution(lessons: Path, tmp_path: Path) -> None:
    notebook = fill(notebook_with(f"%%exercise {ID}"))
    (lessons / "01_x.ipynb").write_text(json.dumps(notebook))
    with pytest.raises(CourseError):
        release(lessons, tmp_path / "out")


def test_two_cells_for_one_exercise_are_refused() -> None:
    with pytest.raises(CourseError, match="two cells"):
        exercise_cells(notebook_with(f"%%exercise {ID}", f"%%exercise {ID}"))


def test_committed_notebooks_are_in_step() -> None:
    for path in sorted((ROOT / "lessons").glob("*.ipynb")):
        report = sync(path, write=False)
        assert not report.drifted, f"{path.name}: {report}; run `nanoengine lessons sync`"
        assert not report.refused, f"{path.name}: {report}"


def test_course_imports_without_jupyter_and_matplotlib() -> None:
    code = (
        "import sys\n"
        "for name in ('IPython', 'matplotlib', 'transformers', 'ipywidgets'):\n"
        "    sys.modules[name] = None\n"
        "from nanoengine.course import exercises, grade, questions, swap, stub\n"
        "assert stub('01.slot_mapping') and len(questions)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
