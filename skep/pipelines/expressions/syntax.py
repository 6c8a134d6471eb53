"""Parses the text of an expression and checks that it uses allowed syntax only. Pure.

What is not listed here is refused: a new version of Python cannot add a hole. The text is never
executed; the compiler makes new code from the checked tree.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Iterator

from skep.errors import InvalidInput
from skep.pipelines.expressions.functions import NAMES, WITH_PATTERN
from skep.pipelines.expressions.limits import (
    CONSTANT_BITS,
    DEPTH_LIMIT,
    NODE_LIMIT,
    TEXT_LIMIT,
)
from skep.runtime.value_errors import choices

_ALLOWED: tuple[type[ast.AST], ...] = (
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.IfExp),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    *(ast.In, ast.NotIn, ast.Is, ast.IsNot),
    *(ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Load),
    *(ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Call),
)
_WORDS = {
    "GeneratorExp": "comprehensions",
    "ListComp": "comprehensions",
    "SetComp": "comprehensions",
    "DictComp": "comprehensions",
    "Lambda": "lambda",
    "NamedExpr": "assignments with :=",
    "JoinedStr": "f-strings",
    "Starred": "*",
    "Await": "await",
    "Yield": "yield",
    "YieldFrom": "yield",
}


def parse(text: str) -> ast.expr:
    """The checked tree of an expression; raises InvalidInput."""
    if len(text) > TEXT_LIMIT:
        raise InvalidInput(f"the expression exceeds {TEXT_LIMIT} characters")
    tree = _tree(text)
    for count, (node, depth) in enumerate(_walk(tree), 1):
        if depth > DEPTH_LIMIT:
            raise InvalidInput(f"the expression has more than {DEPTH_LIMIT} levels")
        if count > NODE_LIMIT:
            raise InvalidInput(f"the expression has more than {NODE_LIMIT} parts")
        _check(node)
    return tree


def _tree(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\\d" warns, and warnings may be errors
            return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise InvalidInput(f"not an expression: {error.msg}: {text[:200]!r}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput(f"not an expression: {text[:200]!r}") from error


def _walk(tree: ast.expr) -> Iterator[tuple[ast.AST, int]]:
    """Every node with its depth. Nodes such as `Load` and `Add` have no cost of their own."""
    ahead: list[tuple[ast.AST, int]] = [(tree, 1)]
    while ahead:
        node, depth = ahead.pop()
        if isinstance(node, ast.expr | ast.Slice):
            yield node, depth
        else:
            _check_allowed(node)
        ahead += [(below, depth + 1) for below in ast.iter_child_nodes(node)]


def _check(node: ast.AST) -> None:
    _check_allowed(node)
    if isinstance(node, ast.Constant):
        _check_constant(node)
    elif isinstance(node, ast.Call):
        _check_call(node)
    elif isinstance(node, ast.Compare):
        _check_compare(node)
    elif isinstance(node, ast.Slice) and node.step is not None:
        raise InvalidInput("a slice has a start and an end only: text[2:5]")
    elif isinstance(node, ast.Set) and not all(isinstance(e, ast.Constant) for e in node.elts):
        raise InvalidInput("{...} with values must contain constants only; use [...]")
    elif isinstance(node, ast.Dict) and not all(_is_text(key) for key in node.keys):
        raise InvalidInput("the keys of a mapping must be texts in quotes")


def _check_allowed(node: ast.AST) -> None:
    if not isinstance(node, _ALLOWED):
        name = type(node).__name__
        word = _WORDS.get(name, name)
        raise InvalidInput(f"{word} cannot be used in an expression")


def _check_constant(node: ast.Constant) -> None:
    value = node.value
    if not isinstance(value, str | int | float | None):
        raise InvalidInput(f"{type(value).__name__} cannot be used in an expression")
    if isinstance(value, str) and any("\ud800" <= sign <= "\udfff" for sign in value):
        raise InvalidInput("a text contains half of a surrogate pair")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput("a number is too large")
    if isinstance(value, int) and value.bit_length() > CONSTANT_BITS:
        raise InvalidInput("an integer does not fit into 64 bits; put it in quotes")


def _check_compare(node: ast.Compare) -> None:
    """`is` compares identity, which texts and numbers do not have."""
    for operator, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(operator, ast.Is | ast.IsNot) and not _is_singleton(right):
            raise InvalidInput("`is` compares with None, True and False only; use ==")


def _is_singleton(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _check_call(node: ast.Call) -> None:
    if not isinstance(node.func, ast.Name):
        raise InvalidInput("values have no methods; call a function: lower(name)")
    name = node.func.id
    if name not in NAMES:
        raise InvalidInput(f"there is no function {name!r}; {choices(name, NAMES)}")
    if node.keywords:
        raise InvalidInput(f"{name}: arguments have no names")
    if name in WITH_PATTERN and [_is_text(one) for one in node.args[1:]] != [True]:
        raise InvalidInput(f"{name} needs a text and a pattern in quotes")


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
