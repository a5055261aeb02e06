"""A grade: what a student reads, the same in a notebook, in a terminal and in a report."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["todo", "fail", "pass", "partial"]
MESSAGE_LIMIT = 300  # characters; a longer message is not read
_SHORTENED = " […]"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a grade. ok is None for a check that was not run; the message then says why."""

    name: str
    ok: bool | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Grade:
    """The result of grading one answer.

    id: the exercise. state: "todo" (not attempted), "fail", "pass", or "partial" (everything that
    can be checked on this machine passed; the message names what was not run).
    points: what this answer earns. message: one or two sentences, plain text.
    checks: what was looked at, in order; empty when the answer could not be run.
    output: what the answer printed, cut to a screenful.
    detail: the failing case as plain data ("case", "expected", "got"), for a drawing.
    """

    id: str
    state: State
    points: int
    message: str
    checks: tuple[Check, ...] = ()
    output: str = ""
    detail: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def usable(self) -> bool:
        """Whether the answer ran and did nothing wrong, so that the engine may run on it."""
        return self.state == "pass" or (self.state == "partial" and bool(self.checks))

    def __str__(self) -> str:
        """`FAIL 01.slot_mapping: ...`, then what the answer printed."""
        text = f"{self.state.upper()} {self.id}: {self.message}"
        return f"{text}\nYour code printed:\n{self.output}" if self.output else text

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Grade":
        """The inverse of `to_dict`."""
        checks = tuple(Check(**check) for check in values["checks"])
        return cls(**{**values, "checks": checks})

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The same words for IPython's plain text."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """The same words for Jupyter."""
        from nanoengine.course.display import grade_html

        return grade_html(self)


def shorten(message: str) -> str:
    """A message of at most MESSAGE_LIMIT characters, on one line."""
    message = " ".join(message.split())
    if len(message) <= MESSAGE_LIMIT:
        return message
    return message[: MESSAGE_LIMIT - len(_SHORTENED)] + _SHORTENED
