"""Translates the checked tree of an expression into the tree of a Python function. Pure.

No name of the expression becomes a name of the function: a field is a key of the message, and
an attribute is a key too. So `m.__class__` is a look-up that finds nothing.

An absent field is None. Where None could only be a type error (arithmetic, `<`), the field is read
as `m["field"]`: faster, and the error names it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from inspect import signature
from typing import Any

from skep.errors import InvalidInput
from skep.pipelines.expressions import operators, patterns
from skep.pipelines.expressions.functions import WITH_PATTERN

#: The argument of the function, and a variable for steps into nested fields.
MESSAGE, STEP = "m", "t"
_GUARDED: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: operators.add,
    ast.Mult: operators.multiply,
    ast.Mod: operators.remainder,
    ast.Pow: operators.power,
}
_ORDERING = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_PATTERNS: dict[str, Callable[[str], Callable[[Any], Any]]] = {
    "matches": patterns.matches,
    "extract": patterns.extract,
}


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _call(function: ast.expr, *arguments: ast.expr) -> ast.Call:
    return ast.Call(function, list(arguments), [])


class Translator:
    """Translates one expression; collects the fields that it reads and the names that the code
    needs."""

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        self._functions = functions
        self.names: dict[str, Any] = {"type": type, "dict": dict}
        self.fields: set[str] = set()

    def translate(self, node: ast.expr) -> ast.expr:
        """The code of a value; an absent field is None."""
        if (path := path_of(node)) is not None:
            self.fields.add(".".join(path))
            return self._lenient(path)
        made: ast.expr = getattr(self, f"_{type(node).__name__.lower()}")(node)
        return made

    def _operand(self, node: ast.expr) -> ast.expr:
        """The code of an operand for which None is a type error."""
        if (path := path_of(node)) is None:
            return self.translate(node)
        self.fields.add(".".join(path))
        made: ast.expr = _name(MESSAGE)
        for key in path:
            made = ast.Subscript(made, ast.Constant(key), ast.Load())
        return made

    def _lenient(self, path: tuple[str, ...]) -> ast.expr:
        """`m.get("a")`, and `t.get("b") if type(t := m.get("a")) is dict else None`."""
        made: ast.expr = _get(_name(MESSAGE), path[0])
        for key in path[1:]:
            bound = ast.NamedExpr(ast.Name(STEP, ast.Store()), made)
            is_mapping = ast.Compare(_call(_name("type"), bound), [ast.Is()], [_name("dict")])
            made = ast.IfExp(is_mapping, _get(_name(STEP), key), ast.Constant(None))
        return made

    def _bound(self, name: str, value: Any) -> ast.Name:
        self.names[name] = value
        return _name(name)

    def _constant(self, node: ast.Constant) -> ast.expr:
        return ast.Constant(node.value)

    def _boolop(self, node: ast.BoolOp) -> ast.expr:
        return ast.BoolOp(node.op, [self.translate(value) for value in node.values])

    def _unaryop(self, node: ast.UnaryOp) -> ast.expr:
        inner = self.translate if isinstance(node.op, ast.Not) else self._operand
        return ast.UnaryOp(node.op, inner(node.operand))

    def _ifexp(self, node: ast.IfExp) -> ast.expr:
        parts = (self.translate(part) for part in (node.test, node.body, node.orelse))
        return ast.IfExp(*parts)

    def _binop(self, node: ast.BinOp) -> ast.expr:
        left, right = self._operand(node.left), self._operand(node.right)
        guarded = _GUARDED.get(type(node.op))
        if guarded is None:
            return ast.BinOp(left, node.op, right)
        return _call(self._bound(f"op_{guarded.__name__}", guarded), left, right)

    def _compare(self, node: ast.Compare) -> ast.expr:
        ordered = all(isinstance(operator, _ORDERING) for operator in node.ops)
        side = self._operand if ordered else self.translate
        return ast.Compare(side(node.left), node.ops, [side(one) for one in node.comparators])

    def _attribute(self, node: ast.Attribute) -> ast.expr:
        found = self._bound("op_item", operators.item)
        return _call(found, self.translate(node.value), ast.Constant(node.attr))

    def _subscript(self, node: ast.Subscript) -> ast.expr:
        value = self.translate(node.value)
        if not isinstance(node.slice, ast.Slice):
            found = self._bound("op_item", operators.item)
            return _call(found, value, self.translate(node.slice))
        ends = (self._end(node.slice.lower), self._end(node.slice.upper))
        return _call(self._bound("op_cut", operators.cut), value, *ends)

    def _end(self, node: ast.expr | None) -> ast.expr:
        return ast.Constant(None) if node is None else self.translate(node)

    def _list(self, node: ast.List) -> ast.expr:
        return ast.List([self.translate(one) for one in node.elts], ast.Load())

    def _tuple(self, node: ast.Tuple) -> ast.expr:
        return ast.Tuple([self.translate(one) for one in node.elts], ast.Load())

    def _set(self, node: ast.Set) -> ast.expr:
        return ast.Set([self.translate(one) for one in node.elts])

    def _dict(self, node: ast.Dict) -> ast.expr:
        keys: list[ast.expr | None] = [ast.Constant(k.value) for k in node.keys]  # type: ignore[union-attr]  # checked: texts only
        return ast.Dict(keys, [self.translate(value) for value in node.values])

    def _call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)  # noqa: S101 - the syntax check has refused others
        name = node.func.id
        if name in WITH_PATTERN:
            return self._with_pattern(name, node)
        _check_count(name, self._functions[name], len(node.args))
        function = self._bound(f"f_{name}", self._functions[name])
        return _call(function, *(self.translate(one) for one in node.args))

    def _with_pattern(self, name: str, node: ast.Call) -> ast.expr:
        text, pattern = node.args
        try:
            function = _PATTERNS[name](ast.literal_eval(pattern))
        except patterns.BadPattern as error:
            raise InvalidInput(str(error)) from error
        return _call(self._bound(f"p_{len(self.names)}", function), self.translate(text))


def _check_count(name: str, function: Callable[..., Any], count: int) -> None:
    try:
        signature(function).bind(*range(count))
    except TypeError as error:
        raise InvalidInput(f"{name} cannot be called with {count} arguments: {error}") from error


def _get(value: ast.expr, key: str) -> ast.expr:
    return _call(ast.Attribute(value, "get", ast.Load()), ast.Constant(key))


def path_of(node: ast.expr) -> tuple[str, ...] | None:
    """The keys of a field such as `common.ip` or `headers["x-ip"]`; None for other nodes."""
    keys: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            keys.append(node.attr)
        elif isinstance(node, ast.Subscript) and _is_text(node.slice):
            keys.append(str(ast.literal_eval(node.slice)))
        else:
            return None
        node = node.value
    return (node.id, *reversed(keys))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
