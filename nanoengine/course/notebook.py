"""The course inside a notebook: `%load_ext nanoengine.course`, then `%%exercise` and helpers.

Every helper also works in a plain Python session; it prints text there.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from nanoengine.course.capstone_grade import CAPSTONE, grade_capstone, known_grade, whose_parts
from nanoengine.course.display import (
    Rich,
    Row,
    error_line,
    lesson_row,
    picture_of,
    table,
    wrapped,
)
from nanoengine.course.errors import CourseError
from nanoengine.course.grading import grade
from nanoengine.course.registry import Exercise, exercises, questions
from nanoengine.course.result import Grade
from nanoengine.course.source import MARK, clean, run_source
from nanoengine.course.stubs import is_stub, solution_source, stub
from nanoengine.course.swapping import swap
from nanoengine.course.values import plain
from nanoengine.course.work import Work, work_folder

_HINT_NAMES = ("idea", "shape", "near-code")
_hints_given: Counter[str] = Counter()
_start: list[Path] = []  # the notebook's folder, found when the extension is loaded


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext nanoengine.course`: the cell magic and the helpers by their names."""
    _start[:] = [_notebook_folder(shell.user_ns)]
    shell.register_magic_function(_exercise_magic, "cell", "exercise")
    for helper in (hint, show, progress, question, answer, solution, plug_in, capstone):
        shell.user_ns.setdefault(helper.__name__, helper)


def _notebook_folder(names: dict[str, Any]) -> Path:
    """The folder of the running notebook as far as Jupyter or VS Code tell, else the current."""
    for path in (names.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME")):
        if path and Path(path).parent.is_dir() and Path(path).is_absolute():
            return Path(path).parent
    return Path.cwd()


def work() -> Work:
    """The student's work folder, as seen from the notebook."""
    return Work(work_folder(_start[0] if _start else Path.cwd()))


def _show(thing: Any) -> None:
    """Display in a notebook, print elsewhere."""
    if _shell() is None:
        print(thing)
    else:
        display: Any = import_module("IPython.display")
        display.display(thing)


def _shell() -> Any:
    """The running IPython, None elsewhere."""
    ipython: Any = sys.modules.get("IPython")  # imported long ago, if this is a notebook
    return None if ipython is None else ipython.get_ipython()


# -- exercises ---------------------------------------------------------------------------------


def _exercise_magic(line: str, cell: str) -> None:
    """`%%exercise 01.slot_mapping`: save the cell as the answer and grade it."""
    try:
        exercise = exercises[line.strip()]
        # the magic stays as a comment: lines of cell and file have the same numbers
        text, note = _answer_text(exercise, clean(f"{MARK}{exercise.id}\n{cell}"))
        result = _graded(exercise, text)
    except CourseError as error:
        _show(error_line(error))
        return
    if note:
        _show(wrapped(note))
    _show(result)
    picture = picture_of(result)
    if picture is not None:
        _show(picture)
    if result.checks or result.state == "todo":  # it can be loaded safely: let the student try it
        function = run_source(text, str(work().path(exercise))).get(exercise.function)
        _shell().user_ns[exercise.function] = function


def _answer_text(exercise: Exercise, cell: str) -> tuple[str, str]:
    """The text to grade and a note about it; saves a cell that was worked on.

    An untouched stub never overwrites an answer: the saved one is graded instead.
    """
    mine = work()
    if not is_stub(exercise, cell):
        mine.save(exercise, cell)
        return cell, ""
    saved = mine.load(exercise)
    if saved is None or is_stub(exercise, saved):
        return cell, ""
    return saved, (
        "The cell holds the stub; graded is your saved answer, "
        f"{mine.path(exercise)} of {mine.saved_at(exercise)}."
    )


def _graded(exercise: Exercise, text: str) -> Grade:
    """Grade a text and remember the result."""
    result = grade(exercise.id, text)
    if result.state != "todo":
        work().remember(text, result)
    return result


def _standing(exercise: Exercise) -> tuple[Grade, str | None]:
    """The grade and text of the saved answer, graded only if it changed."""
    text = work().load(exercise)
    if text is None:
        text = stub(exercise)
    known = work().known_grade(exercise, text)
    return known or _graded(exercise, text), text


def solution(exercise_id: str) -> Callable[..., Any]:
    """The student's function when it passes, the library's otherwise.

    So a notebook runs to its end whether or not its exercises are solved.
    """
    exercise = exercises[exercise_id]
    result, text = _standing(exercise)
    if result.usable and text is not None:
        function = run_source(text, str(work().path(exercise)))[exercise.function]
    else:
        function = exercise.place().function
        function = getattr(function, "__func__", function)
    return function  # type: ignore[no-any-return]


@contextmanager
def plug_in(*ids: str) -> Iterator[Rich]:
    """Run the engine on the student's parts: `with plug_in("01"): llm.generate(...)`.

    ids: exercises, or lessons' numbers; none: everything. Parts that do not pass yet stay the
    library's. Gives, and shows, what comes from whom.
    """
    chosen = [e for e in exercises.values() if not ids or e.id in ids or e.lesson in ids]
    for name in ids:
        if name not in {e.lesson for e in exercises.values()}:
            exercises[name]  # an unknown one is refused
    parts, lines = {}, []
    for exercise in chosen:
        passes = _standing(exercise)[0].usable
        if passes:
            parts[exercise.id] = solution(exercise.id)
        lines.append(f"{exercise.id}: {'yours' if passes else 'the library’s'}")
    summary = wrapped(f"The engine runs on {len(parts)} of your parts.\n" + "\n".join(lines))
    _show(summary)
    with swap(parts):
        yield summary


def capstone() -> None:
    """Run the engine on every part of yours that passes, all lessons' at once, and show the grade.

    The text must be the library's. Shows the text, and which parts were yours.
    """
    result = grade_capstone(work())
    if result.checks:
        _show(wrapped(whose_parts(result)))
    _show(result)


def hint(exercise_id: str) -> None:
    """Show the next of three hints: the idea, the shape of the answer, nearly the code."""
    exercise = exercises[exercise_id]
    number = min(_hints_given[exercise.id], len(exercise.hints) - 1)
    _hints_given[exercise.id] += 1
    name = f"hint {number + 1} of {len(exercise.hints)}, {_HINT_NAMES[number]}"
    more = "" if number + 1 < len(exercise.hints) else " (the last one)"
    _show(wrapped(f"{exercise.id}, {name}{more}: {exercise.hints[number]}"))


def show(exercise_id: str) -> None:
    """Show the library's own function: the solution."""
    exercise = exercises[exercise_id]
    _show(wrapped(f"# {exercise.target}\n{solution_source(exercise)}".rstrip()))


def progress(*lessons: str) -> None:
    """Show all exercises and questions of the named lessons, `progress("01")`.

    Without a name: a line a lesson, and the capstone's.

    Raises CourseError for a lesson that does not exist.
    """
    known = sorted({exercise.lesson for exercise in exercises.values()})
    for lesson in lessons:
        if lesson not in known:
            raise CourseError(f"there is no lesson {lesson!r}: known are {', '.join(known)}")
    rows = {lesson: _rows(lesson) for lesson in lessons or known}
    everything = [row for part in rows.values() for row in part]
    shown = everything
    if not lessons:
        shown = [lesson_row(*entry) for entry in rows.items()]
        shown += [row for row in everything if row.id == CAPSTONE.id]
    _show(table(shown, "Progress", everything))


def _rows(lesson: str) -> list[Row]:
    """Standing of a lesson's exercises, of its questions, and of the capstone where it is."""
    rows = []
    for exercise in exercises.values():
        if exercise.lesson == lesson:
            rows.append(_row(exercise.id, _standing(exercise)[0], exercise.points, exercise.title))
    mine = work()
    if CAPSTONE.lesson == lesson:
        whole = known_grade(mine)
        title = whole.message or CAPSTONE.title
        rows.append(_row(CAPSTONE.id, whole, CAPSTONE.points, title))
    answers = mine.answers()
    for entry in questions.values():
        if entry.id.startswith(f"{lesson}."):
            given = entry.check(mine.student, answers.get(entry.id, ...))
            rows.append(_row(entry.id, given, entry.points, "question"))
    return rows


def _row(row_id: str, grade: Grade, points: int, title: str) -> Row:
    note = grade.message if grade.state == "fail" else title
    return Row(row_id, grade.state, grade.points, points, note)


# -- questions ---------------------------------------------------------------------------------


def question(question_id: str) -> None:
    """Show a question with this student's numbers."""
    entry = questions[question_id]
    _show(wrapped(f"{entry.id}: {entry.ask(work().student)}"))


def answer(question_id: str, value: Any) -> None:
    """Answer a question; `...` asks it. Values as a list or number, choices as a letter."""
    entry, mine = questions[question_id], work()
    if value is ...:
        question(question_id)
    else:
        mine.remember_answer(entry.id, plain(value))
    _show(entry.check(mine.student, value))
