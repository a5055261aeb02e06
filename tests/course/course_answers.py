"""The committed wrong and right answers: files with a few header lines."""

from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent.parent


class Answer(NamedTuple):
    """One file: which exercise, its text, and what its header demands."""

    exercise: str
    path: Path
    text: str
    header: dict[str, str]

    @property
    def words(self) -> list[str]:
        """Words that the message must contain."""
        return [word.strip() for word in self.header["words"].split("|")]

    def __str__(self) -> str:
        return f"{self.exercise}/{self.path.stem}"


def answers(kind: str) -> list[Answer]:
    """All answers in tests/<kind>/<exercise id>/*.py."""
    found = []
    for path in sorted((TESTS / kind).glob("*/*.py")):
        text = path.read_text(encoding="utf-8")
        header = {}
        for line in text.splitlines():
            if not line.startswith("# ") or ": " not in line:
                break
            key, _, value = line[2:].partition(": ")
            header[key] = value
        found.append(Answer(path.parent.name, path, text, header))
    return found


WRONG = answers("wrong_answers")
RIGHT = answers("right_answers")
