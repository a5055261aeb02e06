"""The capstone: whose parts ran, whether they fit together, and who is to blame."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from course_answers import RIGHT, WRONG
from hypothesis import given
from hypothesis import strategies as st

from nanoengine.course import capstone_grade, capstone_run, exercises, notebook
from nanoengine.course.capstone_grade import CAPSTONE, grade_capstone, judge, known_grade
from nanoengine.course.result import MESSAGE_LIMIT, Grade
from nanoengine.course.stubs import solution_source, stub
from nanoengine.course.work import Work

EXPECTED = {"tokens": [[1, 2]], "texts": ["a b"]}


def right(exercise_id: str) -> str:
    """An answer that passes and is not the library's."""
    return next(a.text for a in RIGHT if a.exercise == exercise_id and not a.header)


def wrong(exercise_id: str, name: str) -> str:
    return next(a.text for a in WRONG if a.exercise == exercise_id and a.path.stem == name)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setenv("NANOENGINE_WORK", str(tmp_path))
    return Work(tmp_path)


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """`judge` without running anything: the blame is what this list holds."""
    blame: list[Any] = []
    monkeypatch.setattr(capstone_grade, "_seen", lambda task: blame)
    return blame


# -- for real ----------------------------------------------------------------------------------


def test_nothing_solved_is_todo(mine: Work) -> None:
    mine.save(exercises["06.run"], stub("06.run"))
    result = grade_capstone(mine)
    assert (result.state, result.points) == ("todo", 0)
    assert known_grade(mine).state == "todo"


def test_some_parts_run_together_and_are_named(mine: Work, capsys: Any) -> None:
    """Two answers and one that fails alone: two are taken, and the grade is kept."""
    for name in ("06.sample", "01.slot_mapping"):
        mine.save(exercises[name], right(name))
    mine.save(exercises["06.run"], wrong("06.run", "argmax"))
    assert known_grade(mine).state == "todo"
    notebook.capstone()
    result = known_grade(mine)
    assert result.state == "partial", result
    assert "the same text with 2 of your parts" in result.message
    owners = {check.name: check.message for check in result.checks}
    assert owners["06.run"] == "the library's"
    assert owners["06.sample"].startswith("yours (calls: ")
    assert owners["01.slot_mapping"].startswith("yours (calls: ")
    assert list(owners) == list(exercises)
    assert 0 <= result.points < CAPSTONE.points
    printed = capsys.readouterr().out
    assert "01.slot_mapping: yours" in printed
    assert "the library's: 00.hello, " in printed
    assert f"{capstone_run.PROMPTS[0]!r} -> ' " in printed
    notebook.progress("06")
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith(CAPSTONE.id))
    assert "PARTIAL" in line
    mine.save(exercises["06.sample"], f"# changed\n{right('06.sample')}")
    assert known_grade(mine).state == "todo", "the grade was for other answers"


def test_what_measures_an_engine_is_no_part_of_it(no_processes: list[Any]) -> None:
    """All of an engine solved and nothing of lesson 07: the whole engine is the student's."""
    parts = {e.id: solution_source(e) for e in exercises.values() if e.lesson != "07"}
    result = judge(parts, EXPECTED, {"one": EXPECTED})
    assert (result.state, result.points) == ("pass", CAPSTONE.points), result
    notes = {check.message for check in result.checks if check.name.startswith("07.")}
    assert notes == {"no part of an engine"}
    del parts["01.slot_mapping"]
    result = judge(parts, EXPECTED, {"one": EXPECTED})
    assert result.state == "partial"
    assert result.message.endswith("The library's still: 01.slot_mapping.")


def test_every_part_at_once_passes() -> None:
    """The library's functions as if they were answers, on one rank and on two."""
    parts = {e.id: solution_source(e) for e in exercises.values() if e.missing() is None}
    result = judge(parts, *capstone_grade._both(parts))
    assert result.state == "pass", result
    running, left_out = capstone_run.chosen(list(parts))
    assert f"with {len(running)} of your parts" in result.message
    assert {c.name for c in result.checks if c.ok is None} - set(left_out) <= set(exercises) - set(
        parts
    )
    assert result.points == CAPSTONE.points
    assert all(check.ok is not False for check in result.checks)


def test_a_part_that_spoils_the_text_is_named() -> None:
    parts = {
        "01.slot_mapping": right("01.slot_mapping"),
        "06.sample": wrong("06.sample", "always_greedy"),
        "06.run": right("06.run"),
    }
    result = judge(parts, *capstone_grade._both(parts))
    assert result.state == "fail"
    assert "It takes only 06.sample." in result.message, result
    assert "output 2 should be" in result.message  # the first one that is sampled


def test_an_exception_names_file_and_line() -> None:
    text = "def sample(logits, temperatures, noise):\n    raise ValueError('no tokens')\n"
    parts = {"06.sample": text, "01.slot_mapping": right("01.slot_mapping")}
    result = judge(parts, *capstone_grade._both(parts))
    assert result.state == "fail"
    assert "ValueError: no tokens, 06_sample.py, line 2" in result.message, result


# -- the verdict -------------------------------------------------------------------------------


def test_parts_that_fail_together_are_named(no_processes: list[Any]) -> None:
    no_processes += ["01.pad_block_tables", "02.attend"]
    seen = {"one": {**EXPECTED, "texts": ["a c"]}}
    parts = dict.fromkeys(("01.pad_block_tables", "02.attend", "06.run"), "")
    result = judge(parts, EXPECTED, seen)
    assert "It takes 01.pad_block_tables, 02.attend together" in result.message
    assert result.state == "fail"


@pytest.mark.parametrize("ranks", ["one", "two"])
def test_a_difference_fails_on_one_rank_and_on_two(ranks: str, no_processes: list[Any]) -> None:
    seen: dict[str, Any] = {"one": EXPECTED, "two": EXPECTED}
    parts = dict.fromkeys((e.id for e in exercises.values()), "")
    assert judge(parts, EXPECTED, seen).state == "pass"
    for given_ in ({**EXPECTED, "tokens": [[1, 3]]}, {"error": "ValueError: x"}):
        result = judge(parts, EXPECTED, {**seen, ranks: given_})
        assert result.state == "fail"
        assert f"on {ranks} rank" in result.message
        assert result.points == 0


@given(st.sets(st.sampled_from(list(exercises))))
def test_a_verdict_is_short_and_counts_parts(chosen: set[str]) -> None:
    parts = {name: "" for name in exercises if name in chosen}
    result = judge(parts, EXPECTED, {"one": EXPECTED, "calls": dict.fromkeys(parts, 3)})
    whole = {e.id for e in exercises.values() if e.level != "bonus" and e.lesson != "07"}
    assert (result.state == "pass") == (whole <= chosen)
    assert result.points == CAPSTONE.points * len(whole & chosen) // len(whole)
    assert len(result.message) <= MESSAGE_LIMIT
    assert {c.name for c in result.checks if c.ok} == chosen


# -- who is to blame ---------------------------------------------------------------------------


@given(
    st.sets(st.sampled_from(list(exercises)), min_size=1),
    st.data(),
)
def test_the_smallest_fault_is_found(ids: set[str], data: st.DataObject) -> None:
    """Whatever set of parts makes the difference, exactly that set is named."""
    usable = capstone_run.chosen([name for name in exercises if name in ids])[0]
    fault = data.draw(st.sets(st.sampled_from(usable), min_size=1))

    def generate(parts: Mapping[str, str], *rest: Any) -> dict[str, Any]:
        return {"tokens": [], "texts": []} if fault <= parts.keys() else EXPECTED

    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(capstone_run, "generate", generate)
        found = capstone_run.smallest_fault(dict.fromkeys(usable, ""), EXPECTED, two=False)
    assert set(found) == fault


def test_two_parts_for_one_place_the_first_has_it() -> None:
    ids = ["02.store_kvcache", "02.attend", "02.store_kvcache_triton"]
    assert capstone_run.chosen(ids) == (ids[:2], {ids[2]: ids[0]})
    assert capstone_run.chosen(ids[1:]) == (ids[1:], {})


def test_two_ranks_run_only_for_a_part_that_had_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[bool] = []

    def generate(parts: Any, more: Mapping[str, Any], calls: Counter[str]) -> dict[str, Any]:
        ran.append(bool(more))
        calls["06.run"] += 1
        return EXPECTED

    monkeypatch.setattr(capstone_run, "generate", generate)
    assert capstone_run.observe({"06.run": ""})["two"] is None
    assert capstone_run.observe({"06.run": "", "01.slot_mapping": ""})["two"] == EXPECTED
    assert ran == [False, False, True]


# -- grades of pytest --------------------------------------------------------------------------


def test_a_fresh_grade_trusts_no_file(mine: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest grades again: what grades.json claims counts for nothing, nothing is written."""
    mine.save(exercises["06.run"], wrong("06.run", "argmax"))
    text = mine.load(exercises["06.run"])
    assert text is not None
    mine.remember(text, Grade("06.run", "pass", 4, "forged"))
    before = json.loads((mine.folder / "grades.json").read_text())
    monkeypatch.setattr(capstone_grade, "_both", pytest.fail)
    assert grade_capstone(mine, fresh=True).state == "todo"
    assert json.loads((mine.folder / "grades.json").read_text()) == before
