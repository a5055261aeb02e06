"""nanoengine/ERRORS.md lists every error that users can meet, and nothing that is gone."""

from collections import Counter

import error_messages
import pytest

TEXT = error_messages.PAGE.read_text(encoding="utf-8")


def test_every_message_is_listed_once() -> None:
    missing = list(error_messages.missing())
    assert not missing, "add to nanoengine/ERRORS.md, under its cause:\n" + "\n".join(missing)
    twice = [row for row, count in Counter(error_messages.rows()).items() if count > 1]
    assert not twice


def test_nothing_is_listed_that_is_gone() -> None:
    gone = [row for row in error_messages.rows() if row not in error_messages.messages()]
    assert not gone, "remove from nanoengine/ERRORS.md, or change:\n" + "\n".join(gone)


@pytest.mark.parametrize("name", sorted(error_messages.classes()))
def test_every_class_has_a_section_with_cause_and_remedy(name: str) -> None:
    assert f"\n## {name}\n" in TEXT
    section = TEXT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    summary = " ".join(error_messages.classes()[name].partition("\n\n")[0].split())
    assert summary in section
    parts = section.split("\n### ")[1:]
    assert parts
    for part in parts:
        assert part.count("\nCause: ") == part.count("\nRemedy: ") == 1, part[:80]


def test_messages_are_found_in_the_code() -> None:
    """The reader sees f-strings, joined strings and classes outside of errors.py."""
    found = error_messages.messages()
    assert len(found) > 150
    assert "this LLM is closed: make a new one" in found
    assert "max_model_len=… is beyond the model's max_position_embeddings=…: use at most …" in found
    assert any(place.startswith("course/") for place in found.values())
