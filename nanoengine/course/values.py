"""Plain data: what a graded function returned, as JSON can carry it, and how two of them differ."""

import copy
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from nanoengine.course.registry import Case

TYPE = "type of the value"  # key of the dict that stands for anything that is not plain
ITEMS = "items of the array"  # and of an array's content
_MAX_ITEMS = 100_000
_MAX_SHOWN = 60  # characters of a value in a message


class Difference(NamedTuple):
    """The first difference between the expected and the student's result.

    text: "position 8 should be slot 20, you gave 12". binding: it fails the answer; otherwise the
    answer passes when the engine works with it, and the text is a remark.
    """

    text: str
    binding: bool = True


class MutatedArgument(Exception):
    """The function changed an argument that belongs to the caller."""


def plain(value: Any, depth: int = 6) -> Any:
    """`value` as None, bool, int, float, str, lists of such; anything else becomes {TYPE: name}.

    Integer-like values (numpy's, zero-dimensional tensors) become int; tuples and ranges become
    lists; arrays and tensors {TYPE: name, ITEMS: list}; dataclasses and simple objects a dict of
    their fields with their TYPE.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    name = type(value).__name__
    if depth == 0:
        return {TYPE: name}
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        items = plain(value.tolist(), depth)
        return {TYPE: name, ITEMS: items} if isinstance(items, list) else items
    try:
        return operator.index(value)
    except Exception:  # not an integer, or its own __index__ is broken
        pass
    if isinstance(value, list | tuple | range):
        if len(value) > _MAX_ITEMS:
            return {TYPE: f"{name} of {len(value)} items"}
        return [plain(item, depth - 1) for item in list.__iter__(list(value))]
    return _fields(value, name, depth)


def _fields(value: Any, name: str, depth: int) -> dict[str, Any]:
    if is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in fields(value)]
    elif hasattr(value, "__dict__") and not callable(value) and not isinstance(value, type):
        names = [key for key in vars(value) if not key.startswith("_")]
    else:
        return {TYPE: name}
    return {TYPE: name, **{key: plain(getattr(value, key, None), depth - 1) for key in names}}


def call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call the function and return its result as plain data; watch the arguments.

    Raises MutatedArgument when an argument is not what it was before.
    """
    before = [plain(copy.copy(arg)) for arg in args]
    result = plain(function(*args))
    for index, (arg, old) in enumerate(zip(args, before, strict=True)):
        change = _first_change(old, plain(arg))
        if change is not None:
            path, was, now = change
            name = f"argument {index + 1}{path and f' at {path}'}"
            raise MutatedArgument(f"{name}: it was {show(was)}, afterwards {show(now)}")
    return result


def _first_change(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """(path, before, after) of the innermost list or field that changed."""
    if old == new:
        return None
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        key = next(k for k in old if old[k] != new[k])
        return _first_change(old[key], new[key], f"{path}.{key}")
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        index = next(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
        if isinstance(old[index], list | dict):
            return _first_change(old[index], new[index], f"{path}[{index}]")
    return path, old, new


def without_arrays(value: Any) -> tuple[Any, str]:
    """`value` with lists in the place of arrays, and the type of the first array, or ""."""
    if isinstance(value, dict) and ITEMS in value:
        return value[ITEMS], value[TYPE]
    if isinstance(value, dict):
        parts = {key: without_arrays(item) for key, item in value.items()}
        kind = next((kind for _, kind in parts.values() if kind), "")
        return {key: item for key, (item, _) in parts.items()}, kind
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        items = [without_arrays(item) for item in value]
        return [item for item, _ in items], next((kind for _, kind in items if kind), "")
    return value, ""


def show(value: Any) -> str:
    """A value in a message: short, on one line, without addresses."""
    if isinstance(value, Mapping):
        return f"a {value[TYPE]}" if TYPE in value else "a dict"
    text = json.dumps(value).replace("null", "None") if value is not None else "None"
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 4]} ..."


def wrong_kind(got: Any, expected: str) -> Difference | None:
    """The difference when `got` is not a list (of anything): None, a generator, a number."""
    if got is None:
        return Difference(f"expected {expected}, you returned None: is a `return` missing?")
    if not isinstance(got, list):
        return Difference(f"expected {expected}, you returned {show(got)}")
    return None


def first_difference(expected: Sequence[Any], got: Sequence[Any]) -> int | None:
    """Index of the first item that differs; a missing or extra item differs, too.

    So does 8.0 from a whole number 8: as a position or slot the engine takes no float.
    """
    for index, (wanted, given) in enumerate(zip(expected, got, strict=False)):
        if wanted != given or (isinstance(given, float) and isinstance(wanted, int)):
            return index
    return None if len(expected) == len(got) else min(len(expected), len(got))


def compare_plain(case: "Case", expected: Any, got: Any) -> Difference | None:
    """Equal or not; for lists the first position that differs."""
    if expected == got:
        return None
    if isinstance(expected, list):
        wrong = wrong_kind(got, "a list")
        if wrong:
            return wrong
        index = first_difference(expected, got)
        assert index is not None
        if index >= len(got) or index >= len(expected):
            return Difference(f"expected {len(expected)} items, you gave {len(got)}")
        return Difference(
            f"item {index} should be {show(expected[index])}, you gave {show(got[index])}"
        )
    if got is None:
        return Difference(f"expected {show(expected)}, you returned None: is a `return` missing?")
    return Difference(f"expected {show(expected)}, you gave {show(got)}")
