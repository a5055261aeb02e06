"""A student's source text: read it, clean it, compare it, and run it as a module of its own."""

import ast
import io
import linecache
import tokenize
from pathlib import Path
from types import ModuleType
from typing import Any

from nanoengine.course.errors import CourseError

MAGIC = "%%exercise"
FILENAME = "your answer"  # what tracebacks of a graded answer name
ANSWER_MODULE = "answer"  # the name of the module that an answer becomes
MARK = f"# {MAGIC} "  # the saved file's first line: file and cell have the same line numbers


def read_source(path: Path) -> str:
    """The text of a source file, whatever its line ends and its declared encoding.

    Raises CourseError when the bytes are not text.
    """
    data = path.read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return clean(data.decode(encoding))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise CourseError(f"{path.name} is not readable text ({error}): save it as UTF-8") from None


def clean(text: str) -> str:
    """One kind of line end, no byte order mark, the magic as a comment, a newline at the end."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if text.startswith(MAGIC):
        text = f"# {text}"
    return text if text.endswith("\n") else text + "\n"


def same_code(left: str, right: str) -> bool:
    """Whether two sources differ in comments, docstrings and layout only."""
    try:
        return ast.dump(_without_docstrings(left)) == ast.dump(_without_docstrings(right))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return left.strip() == right.strip()


def is_empty(text: str) -> bool:
    """Whether a source holds no code at all."""
    return same_code(text, "")


def _without_docstrings(text: str) -> ast.Module:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not body or not isinstance(body[0], ast.Expr):
            continue
        first = body[0].value
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            del body[0]
    return tree


def run_source(text: str, filename: str) -> dict[str, Any]:
    """Run a source as a fresh module; returns its names. Whatever it raises passes through.

    Tracebacks and `inspect` find the text under `filename`.
    """
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    module = ModuleType(ANSWER_MODULE)
    module.__file__ = filename
    exec(compile(text, filename, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def line_of(text: str, number: int) -> str:
    """One line of the source, stripped; "" beyond its end."""
    lines = text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
