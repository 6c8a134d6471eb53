"""Values of a document, compiled once: constants, expressions and templates. Pure.

A text that starts with `=` is an expression; `{{ }}` in a text holds one; everything else is a
constant. A template with a part that is None is None: half a key would be a wrong key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from skep.errors import InvalidInput
from skep.pipelines.expressions.expression import Expression, ExpressionFailed, Message
from skep.pipelines.expressions.functions import to_str
from skep.pipelines.expressions.limits import SIZE_LIMIT
from skep.runtime.clock import Clock

Value = Callable[[Message], Any]
_PART = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
#: Levels of lists and mappings in one value.
_DEPTH = 16


def compile_value(raw: Any, clock: Clock, depth: int = 1) -> Value:
    """A function of the message; raises InvalidInput. The function raises ExpressionFailed."""
    if depth > _DEPTH:
        raise InvalidInput(f"the value has more than {_DEPTH} levels")
    if isinstance(raw, str):
        return _compile_text(raw, clock)
    if isinstance(raw, dict):
        parts = {name: compile_value(value, clock, depth + 1) for name, value in raw.items()}
        return lambda message: {name: value(message) for name, value in parts.items()}
    if isinstance(raw, list | tuple):
        entries = [compile_value(value, clock, depth + 1) for value in raw]
        return lambda message: [value(message) for value in entries]
    return lambda _: raw


def _compile_text(text: str, clock: Clock) -> Value:
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InvalidInput("a text contains half of a surrogate pair")
    if text.startswith("="):
        return Expression(text[1:], clock).value
    if "{{" in text:
        return _compile_template(text, clock)
    return lambda _: text


def _compile_template(text: str, clock: Clock) -> Value:
    pieces = _PART.split(text)
    if any("{{" in piece for piece in pieces[::2]):
        raise InvalidInput("a part of the template has no end; write {{ expression }}")
    constants = pieces[::2]
    values = [Expression(piece, clock).value for piece in pieces[1::2]]

    def filled(message: Message) -> str | None:
        made = [constants[0]]
        for value, constant in zip(values, constants[1:], strict=True):
            if (found := value(message)) is None:
                return None
            made += _shown(found), constant
        return _joined(made)

    return filled


def _shown(value: Any) -> str:
    try:
        return to_str(value)
    except TypeError as error:
        raise ExpressionFailed(str(error)) from None


def _joined(parts: list[str]) -> str:
    if sum(map(len, parts)) > SIZE_LIMIT:
        raise ExpressionFailed(f"a value exceeds {SIZE_LIMIT} characters or entries")
    return "".join(parts)
