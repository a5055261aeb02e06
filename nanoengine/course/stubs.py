"""Stubs: what a student starts from, cut from the library function, so that it cannot drift."""

import ast
import inspect
import sys
import textwrap

from nanoengine.course.errors import CourseError
from nanoengine.course.registry import Exercise, exercises
from nanoengine.course.source import same_code

MARKER = 'raise NotAttempted("{id}")  # your code replaces this line'
_IMPORT_MARKER = "from nanoengine.course import NotAttempted"
_INDENT = " " * 4


def stub(exercise: Exercise | str) -> str:
    """The source a student starts from: imports, the library's signature and docstring, a marker.

    It ends in `raise NotAttempted(...)`; helpers from earlier exercises are named above it.
    """
    entry = exercises[exercise] if isinstance(exercise, str) else exercise
    place = entry.place()
    module = sys.modules[entry.target.partition(":")[0]]
    node, lines = _function_source(entry)
    head = "\n".join(lines[_first_line(node) - 1 : node.body[0].end_lineno])
    body = []
    if entry.uses:
        body.append(f"# you may call {', '.join(entry.uses)}")
    body.append(MARKER.format(id=entry.id))
    imports = _imports(node, module.__name__, place.name, entry.uses)
    return f"{imports}\n\n\n{head}\n{textwrap.indent(chr(10).join(body), _INDENT)}\n"


def is_stub(exercise: Exercise, text: str) -> bool:
    """Whether a source is the untouched stub, comments and docstrings apart, or empty."""
    return same_code(text, stub(exercise)) or same_code(text, "")


def solution_source(exercise: Exercise) -> str:
    """The library's own function as text, for `show` and for filling a notebook."""
    node, lines = _function_source(exercise)
    module = exercise.target.partition(":")[0]
    start, end = _first_line(node), node.end_lineno
    imports = _imports(node, module, node.name, exercise.uses, whole=True)
    text = "\n".join(lines[start - 1 : end])
    for helper in exercise.uses:  # inside the module the helpers are plain names
        text = _qualify(text, helper)
    return f"{imports}\n\n\n{text}\n"


def _function_source(exercise: Exercise) -> tuple[ast.FunctionDef, list[str]]:
    """The function's syntax tree and its dedented source lines."""
    function = exercise.place().function
    function = getattr(function, "__func__", function)  # a staticmethod
    lines = textwrap.dedent(inspect.getsource(inspect.unwrap(function))).splitlines()
    node = ast.parse("\n".join(lines)).body[0]
    if not isinstance(node, ast.FunctionDef) or ast.get_docstring(node) is None:
        raise CourseError(f"exercise {exercise.id}: {exercise.target} needs a def and a docstring")
    return node, lines


def _first_line(node: ast.FunctionDef) -> int:
    """Where the text begins: the first decorator that matters outside its class."""
    decorators = [d for d in node.decorator_list if ast.unparse(d) != "staticmethod"]
    return min([node.lineno, *(d.lineno for d in decorators)])


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _imports(
    node: ast.FunctionDef, module: str, own: str, uses: tuple[str, ...], whole: bool = False
) -> str:
    """Import lines for every name of the signature (or of the whole function) and the helpers."""
    parts: list[ast.AST] = [node.args, *node.decorator_list, *([node.returns] if node.returns else [])]
    wanted = _names(node) if whole else set().union(*map(_names, parts))
    wanted -= {own, "staticmethod"} | {helper.rpartition(".")[2] for helper in uses}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    lines = set() if whole else {_IMPORT_MARKER}
    homes = {helper.rpartition(".")[0] for helper in uses}
    package, _, leaf = module.rpartition(".")
    for home in homes:
        if home != leaf:
            raise CourseError(f"{module}: helpers must be named {leaf}.name, not {home}.name")
        lines.add(f"from {package} import {leaf}")
    local: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            lines |= _matching_imports(statement, wanted)
        else:
            local |= {name for name in _defined(statement) if name in wanted}
    if local:
        lines.add(f"from {module} import {', '.join(sorted(local))}")
    ordered = sorted(lines, key=lambda line: ("nanoengine" in line, "torch" in line, line.split()[1]))
    return _grouped(ordered)


def _matching_imports(statement: ast.Import | ast.ImportFrom, wanted: set[str]) -> set[str]:
    found = [a for a in statement.names if (a.asname or a.name.split(".")[0]) in wanted]
    if not found:
        return set()
    kept: ast.Import | ast.ImportFrom
    if isinstance(statement, ast.Import):
        kept = ast.Import(names=found)
    else:
        kept = ast.ImportFrom(module=statement.module, names=found, level=statement.level)
    return {ast.unparse(kept)}


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return {statement.name}
    if isinstance(statement, ast.Assign):
        return set().union(*map(_names, statement.targets))
    if isinstance(statement, ast.AnnAssign):
        return _names(statement.target)
    return set()


def _grouped(lines: list[str]) -> str:
    """A blank line between the standard library, torch and nanoengine."""
    out: list[str] = []
    previous = None
    for line in lines:
        group = ("nanoengine" in line, "torch" in line)
        if previous is not None and group != previous:
            out.append("")
        out.append(line)
        previous = group
    return "\n".join(out)


def _qualify(text: str, helper: str) -> str:
    """Write every call of `name` in the text as `module.name`."""
    name = helper.rpartition(".")[2]
    tree = ast.parse(text)
    lines = text.splitlines()
    places = [
        (n.lineno, n.col_offset) for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name
    ]
    for line, column in sorted(places, reverse=True):
        row = lines[line - 1]
        lines[line - 1] = row[:column] + helper + row[column + len(name) :]
    return "\n".join(lines)
