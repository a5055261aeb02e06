"""Questions: what is understood rather than written.

A ValueQuestion asks for a value computed from inputs drawn for this student; a ChoiceQuestion
has an explanation for every wrong option. Both say TODO until they are answered.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any, Protocol

from nanoengine.course.errors import CourseError
from nanoengine.course.result import Grade, shorten
from nanoengine.course.values import plain, show

NOT_ANSWERED = "not attempted: put your answer in the place of the three dots."


class Question(Protocol):
    """What both kinds offer. student: any text that names the student; inputs are drawn from it."""

    @property
    def id(self) -> str:
        """`01.q.shapes`."""
        ...

    @property
    def points(self) -> int:
        """What a right answer earns."""
        ...

    def ask(self, student: str) -> str:
        """The question's text, with this student's numbers and options."""
        ...

    def check(self, student: str, answer: Any) -> Grade:
        """The grade of an answer; `...` is "todo"."""
        ...


def _todo(question: Question) -> Grade:
    return Grade(question.id, "todo", 0, NOT_ANSWERED)


def _rng(student: str, question: Question) -> random.Random:
    return random.Random(f"{student} {question.id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueQuestion:
    """Compute a value. draw: inputs from a random generator. text: the question about them.

    answer: the right value, best computed by the library itself. explain: what a wrong value
    shows, or "" when it shows nothing special. where: the lesson's section.
    """

    id: str
    draw: Callable[[random.Random], dict[str, Any]]
    text: Callable[[dict[str, Any]], str]
    answer: Callable[[dict[str, Any]], Any]
    explain: Callable[[dict[str, Any], Any], str]
    where: str
    points: int = 1

    def inputs(self, student: str) -> dict[str, Any]:
        """This student's numbers."""
        return self.draw(_rng(student, self))

    def ask(self, student: str) -> str:
        """The question with this student's numbers."""
        return self.text(self.inputs(student))

    def check(self, student: str, answer: Any) -> Grade:
        """Right when the value is equal (a tuple or tensor counts as a list)."""
        if answer is ...:
            return _todo(self)
        inputs, given = self.inputs(student), plain(answer)
        if given == plain(self.answer(inputs)) and type(given) is not bool:
            return Grade(self.id, "pass", self.points, f"{show(given)} is right.")
        why = self.explain(inputs, given) or "compute it once more, step by step."
        message = shorten(f"{show(given)} is not right: {why} See {self.where}.")
        return Grade(self.id, "fail", 0, message)


@dataclass(frozen=True, slots=True)
class Option:
    """One answer of a choice. why: shown when it is chosen; for the right one, what it confirms."""

    text: str
    why: str
    right: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceQuestion:
    """Choose one letter; the options' order is drawn for the student."""

    id: str
    text: str
    options: tuple[Option, ...]
    where: str
    points: int = 1

    def __post_init__(self) -> None:
        """Raises CourseError unless exactly one option is right and all have a why."""
        if sum(option.right for option in self.options) != 1:
            raise CourseError(f"question {self.id}: exactly one option must be right")
        if not all(option.why for option in self.options):
            raise CourseError(f"question {self.id}: every option needs its own explanation")

    def lettered(self, student: str) -> dict[str, Option]:
        """This student's options by letter."""
        options = list(self.options)
        _rng(student, self).shuffle(options)
        return dict(zip(ascii_lowercase, options, strict=False))

    def ask(self, student: str) -> str:
        """The question and its options, one a line."""
        lines = [f"  {letter}) {o.text}" for letter, o in self.lettered(student).items()]
        return "\n".join([self.text, *lines])

    def check(self, student: str, answer: Any) -> Grade:
        """The chosen option's own explanation."""
        if answer is ...:
            return _todo(self)
        options = self.lettered(student)
        letter = answer.strip().lower() if isinstance(answer, str) else None
        if letter not in options:
            message = f"answer with one letter, {min(options)} to {max(options)}, not {answer!r}."
            return Grade(self.id, "fail", 0, shorten(message))
        chosen = options[letter]
        if chosen.right:
            return Grade(self.id, "pass", self.points, shorten(f"{letter} is right: {chosen.why}"))
        message = shorten(f"{letter} is not right: {chosen.why} See {self.where}.")
        return Grade(self.id, "fail", 0, message)
