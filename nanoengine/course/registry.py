"""What can be attempted: exercises and questions, by id.

A lesson's entries are in `nanoengine/course/lessons/lesson_NN.py`; AUTHORS.md says how to add one.
"""

import difflib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from nanoengine.course.errors import CourseError
from nanoengine.course.values import Difference, call, compare_plain

if TYPE_CHECKING:
    from nanoengine.course.quiz import Question
    from nanoengine.viz.style import Picture

Function = Callable[..., Any]
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Case:
    """One call of the student's function, all in plain data (it travels as JSON).

    check: the line of the grade it belongs to. situation: what a message says before "expected".
    args: what `Exercise.arguments` makes the real arguments of.
    """

    check: str
    situation: str
    args: tuple[Any, ...]


class Place(NamedTuple):
    """Where an exercise's function lives: `getattr(owner, name)`."""

    owner: Any
    name: str
    function: FunctionType


class Drawing(Protocol):
    """Pictures of a case's arguments with the expected and the student's result."""

    def __call__(self, args: tuple[Any, ...], expected: Any, got: Any, /) -> "Picture | None": ...


def _as_they_are(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return args


def _unchanged(function: Function) -> Function:
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One library function that the student writes again.

    target: "module:function" or "module:Class.method". The engine must look it up there on every
        call, never through a name imported from it.
    level: "small", "core" or "bonus". minutes: for a student who meets the idea the first time.
    hints: idea, shape, near-code. where: the lesson's section that a message points to.
    uses: earlier exercises' functions that the answer may call, as "inputs.slot_mapping".
    names: further names of the target's module that the stub imports. helpers: functions beside
        the target that belong to the solution. preamble: code that stands before the stub's `def`.
    needs: modules without which the answer cannot be run here; the grade is then "partial".
    also: further targets that take the same function, where another machine's engine calls them.
    cases: the contract, simplest first. arguments: a case's plain args -> real arguments, in the
        process of the graded code. observe: runs one case there -> plain data.
    compare: (case, expected, got) -> the first difference; a binding one fails the answer.
    scenarios: names in `nanoengine.course.scenarios` that are run with the answer swapped in.
    adapt: wraps the answer on its way into the engine, for example to hide what a worker lacks.
    draw: a picture of a failing case.
    captured: the target's effect is baked in when an engine captures graphs; swapping it while
        such an engine lives is refused.
    gpu: (function, "cpu" or "cuda") -> plain data, the same on both: what is run once more on a
        GPU. Without one the grade is "partial". gpu_check: what a grade calls that.
    """

    id: str
    target: str
    title: str
    level: Literal["small", "core", "bonus"]
    minutes: int
    points: int
    hints: tuple[str, str, str]
    where: str
    cases: Callable[[], list[Case]]
    scenarios: tuple[str, ...]
    uses: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    preamble: str = ""
    needs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    arguments: Callable[[tuple[Any, ...]], tuple[Any, ...]] = _as_they_are
    observe: Callable[[Function, tuple[Any, ...]], Any] = call
    compare: Callable[[Case, Any, Any], Difference | None] = compare_plain
    adapt: Callable[[Function], Function] = _unchanged
    draw: Drawing | None = field(default=None, repr=False)
    captured: bool = False
    gpu: Callable[[Function, str], Any] | None = None
    gpu_check: str = ""

    @property
    def function(self) -> str:
        """The name that the student's source must define."""
        return self.target.rpartition(":")[2].rpartition(".")[2]

    @property
    def lesson(self) -> str:
        """The lesson's number, "01"."""
        return self.id.partition(".")[0]

    @property
    def filename(self) -> str:
        """The file in the work folder, `01_slot_mapping.py`."""
        return self.id.replace(".", "_") + ".py"

    def place(self) -> Place:
        """Where the library's function is. Raises CourseError when it is not there any more."""
        return self._place(self.target)

    def places(self) -> list[Place]:
        """The same, and every further place that takes this function."""
        return [self._place(target) for target in (self.target, *self.also)]

    def missing(self) -> str | None:
        """The first of the needed modules that this machine lacks."""
        return next((name for name in self.needs if find_spec(name) is None), None)

    def _place(self, target: str) -> Place:
        module, _, path = target.partition(":")
        owner: Any = import_module(module)
        *parents, name = path.split(".")
        try:
            for parent in parents:
                owner = getattr(owner, parent)
            function = inspect.getattr_static(owner, name)
        except AttributeError as error:
            raise CourseError(f"exercise {self.id}: {target} does not exist") from error
        return Place(owner, name, function)


class Catalogue(Mapping[str, Entry]):
    """Entries by id, in the lessons' order, loaded on first use.

    Raises CourseError, with the nearest known id, for an unknown one.
    """

    def __init__(self, kind: str, attribute: str) -> None:
        self._kind, self._attribute = kind, attribute
        self._entries: dict[str, Entry] | None = None

    def _loaded(self) -> dict[str, Entry]:
        if self._entries is None:
            entries: dict[str, Entry] = {}
            for module in lesson_modules():
                for entry in getattr(module, self._attribute):
                    if entry.id in entries:
                        raise CourseError(f"two {self._kind}s are called {entry.id!r}")
                    entries[entry.id] = entry
            self._entries = entries
        return self._entries

    def __getitem__(self, key: str) -> Entry:
        entries = self._loaded()
        if key not in entries:
            close = difflib.get_close_matches(str(key), entries, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(entries)}"
            raise CourseError(f"there is no {self._kind} {key!r}: {hint}")
        return entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def __contains__(self, key: object) -> bool:
        return key in self._loaded()

    def __repr__(self) -> str:
        return f"<{len(self)} {self._kind}s: {', '.join(self)}>"


def lesson_modules() -> list[Any]:
    """The modules that hold the lessons' entries, in order."""
    package = import_module("nanoengine.course.lessons")
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    return [
        import_module(f"{package.__name__}.{name}") for name in names if name.startswith("lesson_")
    ]


exercises: Catalogue[Exercise] = Catalogue("exercise", "EXERCISES")
questions: "Catalogue[Question]" = Catalogue("question", "QUESTIONS")
