"""The course: exercises that are graded by running a student's function in the real engine.

In a notebook: `%load_ext nanoengine.course`. In Python:

>>> from nanoengine.course import exercises, grade, swap
>>> exercises["01.slot_mapping"].function
'slot_mapping'

Importing this package imports neither torch nor Jupyter nor matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nanoengine.course.errors import CourseError, NotAttempted
    from nanoengine.course.grading import grade
    from nanoengine.course.notebook import (
        answer,
        capstone,
        hint,
        load_ipython_extension,
        plug_in,
        progress,
        question,
        show,
        solution,
    )
    from nanoengine.course.registry import exercises, questions
    from nanoengine.course.result import Check, Grade
    from nanoengine.course.stubs import stub
    from nanoengine.course.swapping import swap

_HOMES = {
    "errors": ("CourseError", "NotAttempted"),
    "grading": ("grade",),
    "notebook": (
        "answer",
        "capstone",
        "hint",
        "load_ipython_extension",
        "plug_in",
        "progress",
        "question",
        "show",
        "solution",
    ),
    "registry": ("exercises", "questions"),
    "result": ("Check", "Grade"),
    "stubs": ("stub",),
    "swapping": ("swap",),
}

__all__ = [
    "Check",
    "CourseError",
    "Grade",
    "NotAttempted",
    "answer",
    "capstone",
    "exercises",
    "grade",
    "hint",
    "load_ipython_extension",
    "plug_in",
    "progress",
    "question",
    "questions",
    "show",
    "solution",
    "stub",
    "swap",
]


def __getattr__(name: str) -> Any:
    """Import each public name on first use."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"nanoengine.course.{home}"), name)
    raise AttributeError(f"module 'nanoengine.course' has no attribute {name!r}")
