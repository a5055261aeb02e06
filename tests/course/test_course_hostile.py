"""Answers that misbehave: one honest line each, never a pass, and the next grade works."""

import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from nanoengine.course import exercises, grade
from nanoengine.course.grading import GradingServer
from nanoengine.course.result import MESSAGE_LIMIT
from nanoengine.course.stubs import solution_source, stub

ID = "01.slot_mapping"
RIGHT = solution_source(exercises[ID])
HEAD = "def slot_mapping(block_table, start, end, block_size):\n"


def body(text: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(text), "    ")


def around(first: str) -> str:
    """The right answer with one statement more at its beginning."""
    docstring, end, rest = RIGHT.partition('    """\n')
    assert rest
    return f"{docstring}{end}    {first}\n{rest}"


HOSTILE = {
    "endless loop": (body("while True: pass"), "time was up|line 2: `while True: pass`"),
    "huge list": (body("return [0] * 10**12"), "MiB of memory|line 2"),
    "huge tensor": (body("import torch\nreturn torch.zeros(10**13)"), "MiB of memory|line 3"),
    "sys.exit": (body("import sys\nsys.exit(0)"), "ends the program (SystemExit)|line 3"),
    "os._exit": (body("import os\nos._exit(0)"), "ended the Python process"),
    "os._exit when loaded": (f"import os\nos._exit(0)\n{RIGHT}", "ended the Python process"),
    "crash": (body("import ctypes\nctypes.string_at(0)"), "crashed|SIGSEGV"),
    "closed descriptors": (around("import os; os.closerange(3, 99)"), "file descriptors"),
    "all descriptors": (around("import os; os.closerange(0, 99)"), "file descriptors"),
    "endless print": (body("while True: print('x' * 9999)"), "printed more than"),
    "input": (body("return input()"), "EOFError"),
    "thread": (
        around("import threading, time; threading.Thread(target=time.sleep, args=(9,)).start()"),
        "thread",
    ),
    "patched grader": (
        f"import nanoengine.course.judge as j\nj.judge = lambda *a: None\n{body('return []')}",
        "expected 4 slots",
    ),
    "patched engine": (
        "from nanoengine.engine import inputs\ninputs.prepare_decode = lambda *a: 1\n" + RIGHT,
        "your code replaced nanoengine.engine.inputs.prepare_decode",
    ),
    "patched torch": (
        "import torch\ntorch.equal = lambda *a: True\n" + RIGHT,
        "your code replaced torch.equal",
    ),
    "always equal": (
        "class Slots(list):\n    __eq__ = lambda *a: True\n" + body("return Slots()"),
        "expected 4 slots|you gave 0",
    ),
    "library handed in": (
        "from nanoengine.engine.inputs import slot_mapping\n",
        "library's own slot_mapping",
    ),
    "library called": (
        "from nanoengine.engine import inputs\n"
        + body("return inputs.slot_mapping(block_table, start, end, block_size)"),
        "library's own slot_mapping|line 3",
    ),
    "library kept": (
        "from nanoengine.engine.inputs import slot_mapping as own\n"
        + body("return own(block_table, start, end, block_size)"),
        "library's own slot_mapping",
    ),
    "raise is still there": (
        stub(ID).replace("    raise", "    slots = []\n    raise"),
        "`raise NotAttempted(...)` is still reached",
    ),
    "only a comment more": (stub(ID).replace("    raise", "    pass\n    raise"), "still reached"),
    "syntax": (HEAD + "    return [\n", "Python cannot read it|line"),
    "notebook command": (f"%timeit 1\n{RIGHT}", "notebook commands"),
    "no function": ("x = 1\n", "no function slot_mapping"),
    "not a function": ("slot_mapping = 3\n", "no function slot_mapping"),
    "recursion": (
        body("return slot_mapping(block_table, start, end, block_size)"),
        "calls itself without end",
    ),
    "bad exception": (
        "class Odd(Exception):\n    def __str__(self): raise ValueError\n" + body("raise Odd"),
        "Odd",
    ),
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_misbehaviour_ends_in_one_honest_line(name: str) -> None:
    source, words = HOSTILE[name]
    result = grade(ID, source)
    assert result.state == "fail", result
    missing = [word for word in words.split("|") if word not in result.message]
    assert not missing, f"{missing} not in: {result.message}"
    assert len(result.message) <= MESSAGE_LIMIT
    assert "\n" not in result.message
    assert result.points == 0


def test_the_grader_is_unharmed_afterwards() -> None:
    for name in ("os._exit", "closed descriptors", "patched grader"):
        grade(ID, HOSTILE[name][0])
    assert grade(ID, RIGHT).state == "pass"


def test_a_server_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a folder nor a process: after a grade, and when closed in the middle of one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = GradingServer()
    server.grade(ID, RIGHT, False)
    assert list(tmp_path.iterdir())
    server.close()
    assert not list(tmp_path.iterdir())
    server = GradingServer()
    marker = tmp_path / "running"
    endless = body(f"open({str(marker)!r}, 'w').close()\nwhile True: pass")
    waiting = threading.Thread(target=lambda: suppressed(lambda: server.grade(ID, endless, False)))
    waiting.start()
    while not marker.exists():
        time.sleep(0.02)
    server.close()
    waiting.join()
    marker.unlink()
    assert not list(tmp_path.iterdir())


def suppressed(action: Callable[[], object]) -> None:
    with suppress(Exception):
        action()


def test_prints_are_shown_and_cut() -> None:
    result = grade(ID, around("print('slots of', start, end)"))
    assert result.state == "pass"
    assert "slots of 0 4" in result.output
    assert len(result.output) <= 2000
    assert "Your code printed" in str(result)


def test_same_source_same_words() -> None:
    source = body("return [block_table[0]]")
    first = grade(ID, source)
    assert all(grade(ID, source) == first for _ in range(2))


@pytest.mark.parametrize(
    "name", ["right", "sys.exit", "os._exit", "library called", "always equal"]
)
def test_a_spawned_child_gives_the_same_grade(name: str) -> None:
    """Other systems cannot fork: a fresh interpreter there must come to the same words."""
    source = RIGHT if name == "right" else HOSTILE[name][0]
    assert grade(ID, source, spawn=True) == grade(ID, source)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("    ", "\t"),
        lambda text: "# Größe der Blöcke: 块大小 🧊\n" + text,
        lambda text: "%%exercise 01.slot_mapping\n" + text,
        lambda text: text.rstrip("\n"),
    ],
    ids=["windows", "bom", "tabs", "non-ascii", "magic line", "no newline"],
)
def test_the_form_of_the_text_does_not_matter(change) -> None:  # type: ignore[no-untyped-def]
    assert grade(ID, change(RIGHT)).state == "pass"
    assert grade(ID, change(stub(ID))).state == "todo"
