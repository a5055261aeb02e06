"""Stubs: what a student starts from, cut from the library function, so that it cannot drift."""

import ast
import textwrap
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nanoengine.course.errors import CourseError
from nanoengine.course.registry import Exercise, exercises
from nanoengine.course.source import same_code

MARKER = 'raise NotAttempted("{id}")  # your code replaces this line'
_IMPORT_MARKER = "from nanoengine.course import NotAttempted"
_INDENT = " " * 4


def stub(exercise: Exercise | str) -> str:
    """The source a student starts from: imports, the library's signature and docstring, a marker.

    It ends in `raise NotAttempted(...)`; helpers from earlier exercises are named above it. The
    library's module is read, not imported: a stub needs none of the module's own imports.
    """
    entry = exercises[exercise] if isinstance(exercise, str) else exercise
    node, lines = _function_source(entry)
    head = "\n".join(lines[_first_line(node) - 1 : node.body[0].end_lineno])
    body = []
    if entry.uses:
        body.append(f"# you may call {', '.join(entry.uses)}")
    body.append(MARKER.format(id=entry.id))
    imports = _imports(entry, [node])
    before = f"{entry.preamble.strip()}\n\n\n" if entry.preamble else ""
    return f"{imports}\n\n\n{before}{head}\n{textwrap.indent(chr(10).join(body), _INDENT)}\n"


def is_stub(exercise: Exercise, text: str) -> bool:
    """Whether a source is the untouched stub, comments and docstrings apart, or empty."""
    return same_code(text, stub(exercise)) or same_code(text, "")


def solution_source(exercise: Exercise) -> str:
    """The library's own function as text, for `show` and for filling a notebook."""
    nodes = [_helper(exercise, name) for name in exercise.helpers]
    node, lines = _function_source(exercise)
    whole = _module(exercise)[0]
    texts = ["\n".join(whole[_first_line(n) - 1 : n.end_lineno]) for n in nodes]
    texts.append("\n".join(lines[_first_line(node) - 1 : node.end_lineno]))
    text = "\n\n\n".join(texts)
    for helper in exercise.uses:  # inside the module the helpers are plain names
        text = _qualify(text, helper)
    return f"{_imports(exercise, [*nodes, node], whole=True)}\n\n\n{text}\n"


@cache
def _parsed(module: str, changed: int) -> tuple[list[str], ast.Module]:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    return text.splitlines(), ast.parse(text)


def _module(exercise: Exercise) -> tuple[list[str], ast.Module]:
    """Lines and syntax tree of the target's module, as its file is now."""
    module = exercise.target.partition(":")[0]
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise CourseError(f"exercise {exercise.id}: there is no module {module}")
    return _parsed(module, Path(spec.origin).stat().st_mtime_ns)


def _function_source(exercise: Exercise) -> tuple[ast.FunctionDef, list[str]]:
    """The function's syntax tree and the source lines that it numbers, dedented."""
    lines, tree = _module(exercise)
    node: ast.AST = tree
    for name in exercise.target.partition(":")[2].split("."):
        found = [n for n in getattr(node, "body", []) if getattr(n, "name", None) == name]
        if not found:
            raise CourseError(f"exercise {exercise.id}: {exercise.target} does not exist")
        node = found[-1]
    if not isinstance(node, ast.FunctionDef) or ast.get_docstring(node) is None:
        raise CourseError(f"exercise {exercise.id}: {exercise.target} needs a def and a docstring")
    if node.col_offset:  # a method: as a function of its own
        end = node.end_lineno
        part = textwrap.dedent("\n".join(lines[_first_line(node) - 1 : end])).splitlines()
        lines = part
        node = next(n for n in ast.walk(ast.parse("\n".join(part))) if _is_named(n, node.name))
        assert isinstance(node, ast.FunctionDef)
    return node, lines


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _helper(exercise: Exercise, name: str) -> ast.FunctionDef:
    for node in _module(exercise)[1].body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise CourseError(f"exercise {exercise.id}: there is no helper {name} beside its target")


def _first_line(node: ast.FunctionDef) -> int:
    """Where the text begins: the first decorator that matters outside its class."""
    decorators = [d for d in node.decorator_list if ast.unparse(d) != "staticmethod"]
    return min([node.lineno, *(d.lineno for d in decorators)])


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _imports(exercise: Exercise, nodes: list[ast.FunctionDef], whole: bool = False) -> str:
    """Import lines for every name of the signature (or of the whole functions) and the helpers."""
    module, uses = exercise.target.partition(":")[0], exercise.uses
    parts: list[ast.AST] = list(nodes) if whole else []
    for node in [] if whole else nodes:
        parts += [node.args, *node.decorator_list, *([node.returns] if node.returns else [])]
    wanted = set().union(*map(_names, parts)) | set(exercise.names)
    wanted -= {node.name for node in nodes} | {"staticmethod"}
    arguments = (a for node in nodes for a in ast.walk(node.args) if isinstance(a, ast.arg))
    wanted -= {argument.arg for argument in arguments}
    wanted -= {helper.rpartition(".")[2] for helper in uses}
    lines = set() if whole else {_IMPORT_MARKER}
    package, _, leaf = module.rpartition(".")
    for home in {helper.rpartition(".")[0] for helper in uses}:
        if home != leaf:
            raise CourseError(f"{module}: helpers must be named {leaf}.name, not {home}.name")
        lines.add(f"from {package} import {leaf}")
    local: set[str] = set()
    for statement in _module(exercise)[1].body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            lines |= _matching_imports(statement, wanted)
        else:
            local |= {name for name in _defined(statement) if name in wanted}
    if local:
        lines.add(f"from {module} import {', '.join(sorted(local))}")
    return _grouped(sorted(lines, key=_order))


def _order(line: str) -> tuple[Any, ...]:
    """Total: equal keys would follow the order of a set, which changes from run to run."""
    return (*_group(line), line.split()[1], line.startswith("from"), line)


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


def _group(line: str) -> tuple[bool, bool]:
    return "nanoengine" in line, "torch" in line


def _grouped(lines: list[str]) -> str:
    """A blank line between the standard library, torch and nanoengine."""
    out: list[str] = []
    previous = None
    for line in lines:
        group = _group(line)
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
