"""Every message that the package's errors can carry, read from its source.

    python tests/trust/error_messages.py

prints those that nanoengine/ERRORS.md does not list yet.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nanoengine

ROOT = Path(nanoengine.__file__).parent
PAGE = ROOT / "ERRORS.md"
HOLE = "…"  # stands for a value
# tools of those who make the course: figures, the shipped model's training, lessons' own checks
NOT_FOR_USERS = ("viz", "classroom/synthesize", "classroom/train", "course/lessons")
_ROW = re.compile(r"- (`+) ?(.+?) ?\1")
_MAKERS = ("unknown_option",)  # functions that only return a message
_BASE = "NanoengineError"


@cache
def classes() -> dict[str, str]:
    """Names of the errors that are raised on purpose, and what their docstrings say."""
    found: dict[str, str] = {_BASE: ""}
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))]
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and _BASE in map(ast.unparse, node.bases):
                found[node.name] = ast.get_docstring(node) or ""
    del found[_BASE]
    return found


def text_of(node: ast.expr) -> str:
    """A message with HOLE for every value in it; the words of a constant, an f-string, a sum."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return HOLE


@cache
def messages() -> dict[str, str]:
    """{message: where it is made}; a message that is only a value is made elsewhere."""
    names, found = classes().keys(), {}
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(NOT_FOR_USERS):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in names:
                words = text_of(node.args[0])
            elif isinstance(node, ast.FunctionDef) and node.name in _MAKERS:
                words = text_of(node.body[-1].value)  # type: ignore[attr-defined]
            else:
                continue
            if set(words) - {HOLE, " "}:
                found[" ".join(words.split())] = f"{place}:{node.lineno}"
    return found


def rows() -> list[str]:
    """The messages that ERRORS.md lists, in order."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [match[2] for match in map(_ROW.match, lines) if match]


def missing() -> Iterator[str]:
    """Messages of the code that the page lacks, with their places."""
    listed = set(rows())
    for message, place in messages().items():
        if message not in listed:
            yield f"{place}: {message}"


if __name__ == "__main__":
    print("\n".join(missing()))
