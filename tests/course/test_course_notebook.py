"""The magic and its helpers in a real IPython, and the student's files."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from nanoengine.course import CourseError, exercises, notebook, questions, stub
from nanoengine.course.capstone_grade import CAPSTONE
from nanoengine.course.stubs import solution_source
from nanoengine.course.work import KEPT_VERSIONS, Work, work_folder
from nanoengine.engine import inputs

ID = "01.slot_mapping"
RIGHT = solution_source(exercises[ID])
WRONG = RIGHT.replace("* block_size +", "* block_size + 1 +")

interactiveshell = pytest.importorskip("IPython.core.interactiveshell")
Cell = Callable[[str], str]


@pytest.fixture
def lessons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lessons folder with a space in its path; the kernel's folder is below it."""
    folder = tmp_path / "my course" / "lessons"
    (folder / "notes").mkdir(parents=True)
    (folder / "01_tensorization.ipynb").write_text("{}")
    monkeypatch.chdir(folder / "notes")
    monkeypatch.delenv("NANOENGINE_WORK", raising=False)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    return folder


@pytest.fixture
def cell(lessons: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    """Run a cell in a fresh shell; returns what a terminal would show."""
    # a shell puts itself in place of __main__, which other tests' spawned workers look at
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    shell = interactiveshell.InteractiveShell.instance()
    shell.reset(new_session=True)
    shell.run_line_magic("load_ext", "nanoengine.course")
    notebook.load_ipython_extension(shell)  # a second load: the folder may have changed

    def run(text: str) -> str:
        with redirect_stdout(io.StringIO()) as out:
            shell.run_cell(text)
        return out.getvalue()

    yield run
    interactiveshell.InteractiveShell.clear_instance()


def exercise_cell(body: str, exercise_id: str = ID) -> str:
    return f"%%exercise {exercise_id}\n{body}"


def test_a_cell_is_saved_graded_and_defined(cell: Cell, lessons: Path) -> None:
    out = cell(exercise_cell(RIGHT))
    assert f"PASS {ID}" in out
    saved = (lessons / "work" / "01_slot_mapping.py").read_text(encoding="utf-8")
    assert saved.splitlines()[0] == f"# %%exercise {ID}"
    assert "[20]" in cell("print(slot_mapping([5], 0, 1, 4))")


def test_a_wrong_cell_says_why_and_can_be_tried(cell: Cell) -> None:
    out = cell(exercise_cell(WRONG))
    assert f"FAIL {ID}" in out
    assert "expected slot 12, you gave 13" in out
    assert "[21]" in cell("print(slot_mapping([5], 0, 1, 4))")
    assert "[20]" in cell(f"print(solution({ID!r})([5], 0, 1, 4))")


def test_lines_of_a_message_are_the_cells(cell: Cell) -> None:
    out = cell(
        exercise_cell("def slot_mapping(block_table, start, end, size):\n    return end / 0")
    )
    assert "line 3: `return end / 0`" in out


def test_a_stub_never_overwrites_an_answer(cell: Cell, lessons: Path) -> None:
    assert f"TODO {ID}" in cell(exercise_cell(stub(ID)))
    assert not (lessons / "work" / "01_slot_mapping.py").exists()
    cell(exercise_cell(RIGHT))
    out = cell(exercise_cell(stub(ID)))
    assert f"PASS {ID}" in out
    assert "The cell holds the stub; graded is your saved answer" in out
    assert "block_table[position" in (lessons / "work" / "01_slot_mapping.py").read_text()


def test_a_restarted_kernel_goes_on(cell: Cell) -> None:
    cell(exercise_cell(RIGHT))
    notebook._start.clear()
    function = notebook.solution(ID)
    assert "work" in function.__code__.co_filename
    assert notebook.solution("01.pad_block_tables") is inputs.pad_block_tables


def test_an_unknown_exercise_is_one_line(cell: Cell) -> None:
    out = cell(exercise_cell("x = 1", "01.slots"))
    assert "did you mean '01.slot_mapping'" in out
    assert "Traceback" not in out


def test_an_endless_loop_does_not_hang_the_kernel(cell: Cell) -> None:
    assert "FAIL" in cell(exercise_cell("while True: pass"))


def test_plug_in_swaps_what_passes(cell: Cell) -> None:
    cell(exercise_cell(RIGHT))
    out = cell(
        "with plug_in('01'):\n    import nanoengine.engine.inputs as i\n    f = i.slot_mapping"
    )
    assert "01.slot_mapping: yours" in out
    assert "01.prepare_decode: the library" in out
    assert "work" in cell("print(f.__code__.co_filename)")
    with pytest.raises(CourseError), notebook.plug_in("1"):
        pass


def test_hints_come_one_by_one(cell: Cell) -> None:
    notebook._hints_given.clear()
    shown = [cell(f"hint({ID!r})") for _ in range(4)]
    assert ["1 of 3" in shown[0], "2 of 3" in shown[1], "3 of 3" in shown[2]] == [True] * 3
    assert "the last one" in shown[3]


def test_progress_of_one_lesson(cell: Cell) -> None:
    out = cell('progress("01")')
    assert "01.slot_mapping" in out
    assert "01.q.slots" in out
    assert "03." not in out
    with pytest.raises(CourseError, match="no lesson '77'"):
        notebook.progress("77")


def test_show_and_progress(cell: Cell) -> None:
    assert "position % block_size" in cell(f"show({ID!r})")
    cell(exercise_cell(RIGHT))
    out = cell("progress('01')")
    assert "01.slot_mapping" in out
    assert "PASS" in out
    assert "TODO" in out
    assert "solved, 2 of" in out


def test_progress_of_all_lessons_is_a_line_each(cell: Cell, lessons: Path) -> None:
    cell(exercise_cell(RIGHT))
    cell("answer('01.q.slots', [0])")
    lines = cell("progress()").splitlines()
    assert [line[:2] for line in lines[:-2]] == sorted({e.lesson for e in exercises.values()})
    assert lines[-2].startswith(CAPSTONE.id)
    inside = [e for e in [*exercises.values(), *questions.values()] if e.id.startswith("01.")]
    line = next(line for line in lines if line.startswith("01"))
    assert f"Tensorization: 1 of {len(inside)} solved, failing: 01.q.slots" in line
    assert line.split()[1] == "FAIL"
    assert next(line for line in lines if line.startswith("02")).split()[1] == "TODO"
    total = sum(e.points for e in [*exercises.values(), *questions.values()])
    assert f"2 of {total + CAPSTONE.points} points" in lines[-1]


def test_questions_in_a_notebook(cell: Cell, lessons: Path) -> None:
    entry: Any = questions["01.q.slots"]
    out = cell("answer('01.q.slots', ...)")
    assert "TODO" in out
    assert "Which slot_mapping" in out
    right = entry.answer(entry.inputs(Work(lessons / "work").student))
    assert "FAIL" in cell(f"answer('01.q.slots', {right[:-1]})")
    assert "PASS" in cell(f"answer('01.q.slots', {right})")
    assert Work(lessons / "work").answers() == {"01.q.slots": right}


def test_html_has_the_same_words() -> None:
    from nanoengine.course.result import Check, Grade

    grade = Grade("01.x", "fail", 0, "a < b", (Check("one", False, "why"),), "out")
    html = grade._repr_html_()
    assert "FAIL 01.x" in html
    assert "a &lt; b" in html
    assert "why" in html
    assert "FAIL 01.x: a < b" in str(grade)


# -- the work folder ---------------------------------------------------------------------------


def test_the_last_ten_versions_are_kept(tmp_path: Path) -> None:
    work, exercise = Work(tmp_path), exercises[ID]
    for number in range(KEPT_VERSIONS + 3):
        work.save(exercise, f"x = {number}\n")
        work.save(exercise, f"x = {number}\n")
    versions = [path.read_text() for path in work.versions(exercise)]
    assert versions == [f"x = {n}\n" for n in range(3, KEPT_VERSIONS + 3)]


def test_an_edit_outside_the_notebook_is_kept_too(tmp_path: Path) -> None:
    work, exercise = Work(tmp_path), exercises[ID]
    work.save(exercise, "x = 1\n")
    work.path(exercise).write_text("x = 2  # in an editor\n")
    work.save(exercise, "x = 3\n")
    assert [p.read_text()[:5] for p in work.versions(exercise)] == ["x = 1", "x = 2", "x = 3"]


def test_where_the_work_folder_is(lessons: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert work_folder(lessons / "notes") == lessons / "work"
    assert work_folder(lessons.parent) == lessons / "work"
    monkeypatch.setenv("NANOENGINE_WORK", str(lessons / "elsewhere"))
    assert work_folder(lessons) == lessons / "elsewhere"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text("{")
    with pytest.raises(CourseError, match=r"answers\.json is damaged"):
        Work(tmp_path).answers()
    (tmp_path / "01_slot_mapping.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CourseError, match="not readable text"):
        Work(tmp_path).load(exercises[ID])
