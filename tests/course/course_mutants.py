"""Mechanical mutants of a library function: one small change each, made on the syntax tree."""

import ast
import copy
from collections.abc import Iterator

COMPARE = {ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Eq: ast.NotEq,
           ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is}  # fmt: skip
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mod,
              ast.Mod: ast.FloorDiv, ast.Div: ast.Mult}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """(name, source) of every mutant; the name is the changed expression before and after."""
    tree = ast.parse(ast.unparse(ast.parse(source)))  # comments and layout do not matter
    seen = {ast.unparse(tree)}
    for index, node in enumerate(ast.walk(tree)):
        if not _inside_a_function(tree, node):
            continue
        for number, what in enumerate(_names_of_changes(node)):
            changed = copy.deepcopy(tree)
            target = list(ast.walk(changed))[index]
            around, before = _around(changed, target), _around(tree, node)
            _change(changed, target, number)
            text = ast.unparse(ast.fix_missing_locations(changed))
            if text not in seen:
                seen.add(text)
                yield f"{what}: {ast.unparse(before)}  ->  {ast.unparse(around)}", text


def _around(tree: ast.Module, node: ast.AST) -> ast.AST:
    """The smallest expression or simple statement around a node that says where it is."""
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    found = parents[node] if not isinstance(node, ast.stmt) else node
    while not isinstance(found, ast.expr | ast.stmt):
        found = parents[found]
    if isinstance(found, ast.UnaryOp):  # -1: its own surroundings say more
        found = parents[found]
    if isinstance(found, ast.For | ast.If | ast.FunctionDef):
        return node
    return found


def _inside_a_function(tree: ast.Module, node: ast.AST) -> bool:
    for function in (f for f in tree.body if isinstance(f, ast.FunctionDef)):
        body = function.body[1:] if ast.get_docstring(function) is not None else function.body
        if any(node is inner for statement in body for inner in ast.walk(statement)):
            return True
    return False


def _names_of_changes(node: ast.AST) -> list[str]:
    """What `_change` can do with this node, by number."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
        new = COMPARE[type(node.ops[0])].__name__
        return [f"{type(node.ops[0]).__name__} to {new}", "always true", "always false"]
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        return [f"{type(node.op).__name__} to {ARITHMETIC[type(node.op)].__name__}"]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return [f"{node.value} plus 1", f"{node.value} minus 1"]
    if isinstance(node, ast.If | ast.IfExp):
        return ["condition negated"]
    if isinstance(node, ast.Expr | ast.AugAssign) or _sets_an_attribute(node):
        return ["statement deleted"]
    if isinstance(node, ast.Try) and node.finalbody:
        return ["finally dropped"]
    if isinstance(node, ast.Call):
        changes = [f"argument {i} plus 1" for i in range(len(node.args))]
        return [*changes, "arguments exchanged"] if len(node.args) == 2 else changes
    if isinstance(node, ast.keyword) and node.arg:
        return [f"{node.arg} is None"]
    if isinstance(node, ast.Slice):
        return ["lower bound dropped", "upper bound dropped"]
    return []


def _sets_an_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)


def _change(tree: ast.Module, node: ast.AST, number: int) -> None:
    if isinstance(node, ast.Compare):
        if number:
            _replace(tree, node, ast.Constant(number == 1))
        else:
            node.ops[0] = COMPARE[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        node.op = ARITHMETIC[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value = node.value + (1 if number == 0 else -1)  # type: ignore[operator]
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Expr | ast.AugAssign | ast.Assign):
        _replace(tree, node, ast.Pass())
    elif isinstance(node, ast.Try):
        _replace(tree, node, ast.If(ast.Constant(True), node.body, []))
    elif isinstance(node, ast.Call):
        if number == len(node.args):
            node.args.reverse()
        else:
            node.args[number] = ast.BinOp(node.args[number], ast.Add(), ast.Constant(1))
    elif isinstance(node, ast.keyword):
        node.value = ast.Constant(None)
    elif isinstance(node, ast.Slice):
        if number == 0:
            node.lower = None
        else:
            node.upper = None


def _replace(tree: ast.Module, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                setattr(parent, name, [new if item is old else item for item in value])
