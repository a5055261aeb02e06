"""What the course raises."""

from nanoengine.errors import NanoengineError


class CourseError(NanoengineError, ValueError):
    """The course is asked for something that does not exist, or its own parts do not fit."""


class NotAttempted(NotImplementedError):
    """An exercise's function still has the line that stands for the student's code."""


class LibraryCalled(RuntimeError):
    """A student's answer reached the library's own function instead of doing the work."""
