"""Every lesson's notebook: well formed, in step with the library, and running to its end.

The notebooks run in a real kernel, unsolved and solved (`-k "not kernel"` leaves that out).
"""

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lesson_facts import FACTS
from notebook_tools import LESSONS, NOTEBOOKS, ROOT, Lesson, execute, numbers, outputs, source

from nanoengine.course import exercises, questions
from nanoengine.course.notebooks import exercise_cells, sync

SCREEN = 1500  # characters of prose that fit on a screen
ALT_CHARS = 20  # an alt text that states something is longer
MIN_EXERCISE_CELLS = 1

every_lesson = pytest.mark.parametrize("lesson", [Lesson(path) for path in NOTEBOOKS], ids=str)


def test_there_are_lessons() -> None:
    assert NOTEBOOKS, f"no notebooks in {LESSONS}"


@every_lesson
def test_form(lesson: Lesson) -> None:
    """Cells have stable, speaking ids; nothing of a run is committed."""
    notebook = lesson.notebook
    assert notebook["nbformat"] == 4
    assert notebook["nbformat_minor"] >= 5, "cell ids need nbformat 4.5"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for name in ids:
        assert re.fullmatch(r"[a-z][a-z0-9-]{1,63}", name), f"cell id {name!r}: use words"
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], cell["id"]
            assert cell["execution_count"] is None, cell["id"]
    assert lesson.texts("code")[0].startswith("%load_ext nanoengine.course")


@every_lesson
def test_prose_is_short_and_has_a_head(lesson: Lesson) -> None:
    prose = lesson.texts("markdown")
    for text in prose:
        assert len(text) <= SCREEN, f"{len(text)} characters, more than a screen: {text[:60]}"
    head = "\n".join(prose[:3])
    for word in ("Goals", "minutes", "need to know"):
        assert word in head, f"the head of the lesson does not tell: {word}"


@every_lesson
def test_exercise_cells_are_in_step_with_the_library(lesson: Lesson) -> None:
    report = sync(lesson.path, write=False)
    assert not report.drifted, f"run `nanoengine lessons sync`: {report}"
    assert not report.refused, report
    mine = [entry.id for entry in exercises.values() if entry.lesson == lesson.number]
    assert [exercise.id for exercise, _ in exercise_cells(lesson.notebook)] == mine


@every_lesson
def test_every_question_has_an_answer_cell(lesson: Lesson) -> None:
    code = "\n".join(lesson.texts("code"))
    for name in questions:
        if name.startswith(lesson.number):
            assert f'answer("{name}", ...)' in code, f"{name} is not asked"


@every_lesson
def test_messages_lead_to_sections_that_exist(lesson: Lesson) -> None:
    """`where` says "section 4, Slots": there is a heading "## 4. Slots"."""
    headings = {
        line.lstrip("# ")
        for text in lesson.texts("markdown")
        for line in text.splitlines()
        if line.startswith("## ")
    }
    entries = [*exercises.values(), *questions.values()]
    for entry in entries:
        if not entry.id.startswith(lesson.number):
            continue
        match = re.fullmatch(r"section (\d+), (.+)", entry.where)
        assert match, f"{entry.id}: where={entry.where!r} names no section"
        assert f"{match[1]}. {match[2]}" in headings, f"{entry.id}: no heading for {entry.where}"


@every_lesson
def test_images_in_the_text_have_alt_texts(lesson: Lesson) -> None:
    for text in lesson.texts("markdown"):
        for alt in re.findall(r"!\[([^\]]*)\]\(", text):
            assert len(alt) >= ALT_CHARS, f"an image without an alt text that tells it: {alt!r}"
        assert_html_images_have_alt(text)


def assert_html_images_have_alt(markup: str) -> None:
    """Every <img> of a piece of HTML has an alt text that states what it shows."""
    for tag in re.findall(r"<img[^>]*>", markup):
        alt = re.search(r'alt="([^"]*)"', tag)
        assert alt, f"an image without alt text: {tag[:120]}"
        assert len(alt[1]) >= ALT_CHARS, f"alt text too short: {alt[1]!r}"


# -- commands ----------------------------------------------------------------------------------


@cache
def help_of(command: str) -> str:
    """What `nanoengine COMMAND --help` prints. Fails when there is no such command."""
    done = subprocess.run(
        [sys.executable, "-m", "nanoengine", *command.split(), "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, f"`nanoengine {command}`: {done.stderr}"
    return done.stdout


@every_lesson
def test_commands_in_the_text_exist(lesson: Lesson) -> None:
    for text in lesson.texts("markdown"):
        for command in re.findall(r"`nanoengine ([^`]+)`", text):
            words = shlex.split(command)
            depth = 2 if words[0] == "lessons" and len(words) > 1 else 1
            described = help_of(" ".join(words[:depth]))
            for option in (word.partition("=")[0] for word in words if word.startswith("--")):
                assert option in described, f"`nanoengine {command}` has no option {option}"


# -- in a kernel -------------------------------------------------------------------------------

WIDGET = "application/vnd.jupyter.widget-view+json"
runs_in_a_kernel = pytest.mark.parametrize("solved", [False, True], ids=["unsolved", "solved"])


@pytest.mark.slow
@every_lesson
@runs_in_a_kernel
def test_runs_in_a_kernel(lesson: Lesson, solved: bool, tmp_path: Path) -> None:
    """To the end, with the grades that are due, drawings with alt texts, no warnings."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    before = lesson.path.read_bytes()
    done = execute(lesson, solved, tmp_path)
    assert lesson.path.read_bytes() == before
    for exercise, cell in exercise_cells(done):
        shown = "\n".join(outputs(cell))
        best = ("PASS",) if exercise.gpu is None else ("PASS", "PARTIAL")
        wanted = best if solved else ("TODO",)
        assert any(f"{state} {exercise.id}" in shown for state in wanted), shown
    for cell in done["cells"]:
        for output in cell.get("outputs", []):
            check_output(output, cell["id"])
        check_sliders(cell)
    check_numbers(lesson, done)


def check_output(output: dict[str, Any], cell: str) -> None:
    """Nothing on stderr; images only with alt texts."""
    assert output.get("name") != "stderr", f"cell {cell} wrote: {output.get('text')}"
    data = output.get("data", {})
    for kind in ("image/png", "image/svg+xml", "image/jpeg"):
        assert kind not in data, f"cell {cell} shows a bare image: return the Picture itself"
    assert_html_images_have_alt(str(data.get("text/html", "")))


def check_sliders(cell: dict[str, Any]) -> None:
    """Sliders and the picture for readers without widgets are one output: nothing shows twice."""
    shown = [output["data"] for output in cell.get("outputs", []) if "data" in output]
    if any(WIDGET in data for data in shown):
        assert len(shown) == 1, f"cell {cell['id']} shows more than its sliders: use viz.explore"
        assert "<img" in str(shown[0].get("text/html")), f"cell {cell['id']}: no static picture"


def check_numbers(lesson: Lesson, done: dict[str, Any]) -> None:
    """Numbers in the prose stand in a code cell, in what one printed, or in lesson_facts.py."""
    known = set()
    for cell in done["cells"]:
        if cell["cell_type"] == "code":
            known |= numbers(source(cell)).union(*map(numbers, outputs(cell)))
    facts = FACTS.get(lesson.number, {})
    for text in lesson.texts("markdown"):
        for number in numbers(text) - known:
            assert number in facts, (
                f"{lesson}: where does {number} come from? Compute it in a cell, or add it to "
                f"lesson_facts.py: {text[:80]}"
            )


@pytest.mark.parametrize("number", FACTS)
def test_facts_are_true_and_used(number: str) -> None:
    lesson = next((Lesson(p) for p in NOTEBOOKS if p.name.startswith(number)), None)
    assert lesson is not None, f"facts for a lesson {number} that does not exist"
    said = set().union(*map(numbers, lesson.texts("markdown")))
    for fact, compute in FACTS[number].items():
        assert fact in said, f"lesson {number} does not say {fact}"
        assert f"{compute():g}" == f"{float(fact):g}", f"lesson {number} says {fact}"
