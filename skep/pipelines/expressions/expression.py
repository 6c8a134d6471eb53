"""An expression of a pipeline, compiled once. Pure; the clock of `now()` is an argument.

`test` is for filters and conditions: an error, such as a comparison of a text with a number, is
false and is counted. `value` is for values: there an error is raised, with its reason.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from skep.pipelines.expressions.compiler import MESSAGE, Translator
from skep.pipelines.expressions.functions import functions
from skep.pipelines.expressions.limits import OverLimit
from skep.pipelines.expressions.syntax import parse
from skep.runtime.clock import Clock

Message = dict[str, Any]
#: What the code of an expression can raise; everything else is a defect of this room.
ERRORS = (
    ArithmeticError,
    LookupError,
    MemoryError,
    OSError,  # times outside the range of the platform
    RecursionError,
    TypeError,
    ValueError,
)
_SHOWN = 200
_FRAME = f"""
def test({MESSAGE}):
    try:
        return True if PLACE else False
    except ERRORS as error:
        return failed(error)

def value({MESSAGE}):
    try:
        return PLACE
    except ERRORS as error:
        raise refused(error) from None
"""


class ExpressionFailed(Exception):
    """An expression has no value for a message; the text says why."""


class Expression:
    """`test(message)` and `value(message)` are functions without a layer in between."""

    def __init__(self, text: str, clock: Clock) -> None:
        """Raises InvalidInput for a text that is not an allowed expression."""
        self.text = text
        #: Errors of `test`, by reason.
        self.errors: Counter[str] = Counter()
        translator = Translator(functions(clock))
        names = self._compiled(translator.translate(parse(text)), translator.names)
        #: Paths of the fields that the expression reads.
        self.fields = frozenset(translator.fields)
        self.test: Callable[[Message], bool] = names["test"]
        self.value: Callable[[Message], Any] = names["value"]

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def _compiled(self, code: ast.expr, names: dict[str, Any]) -> dict[str, Any]:
        tree = ast.fix_missing_locations(_Placed(code).visit(ast.parse(_FRAME)))
        used = {"__builtins__": {}, "ERRORS": ERRORS, "failed": self._failed, "refused": _refused}
        names = {**names, **used}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `1 is None` warns, and warnings may be errors
            code_object = compile(tree, "<expression>", "exec")
        exec(code_object, names)  # noqa: S102 - a tree made by Translator
        return names

    def _failed(self, error: Exception) -> bool:
        reason = reason_of(error)
        # Reasons name fields and types, not values: their number is bounded by the expression.
        self.errors[reason] += 1
        return False


class _Placed(ast.NodeTransformer):
    """Puts the code of an expression where the frame says PLACE."""

    def __init__(self, code: ast.expr) -> None:
        self._code = code

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._code if node.id == "PLACE" else node


def reason_of(error: Exception) -> str:
    """Why an expression has no result, without values of the message."""
    match error:
        case KeyError():
            return f"the field {error.args[0]!r} is absent"
        case TypeError() | OverLimit():
            return str(error)[:_SHOWN]
        case ZeroDivisionError():
            return "division by zero"
        case RecursionError():
            return "the value is nested too deeply"
    return f"not a valid value ({type(error).__name__})"


def _refused(error: Exception) -> ExpressionFailed:
    return ExpressionFailed(reason_of(error))
