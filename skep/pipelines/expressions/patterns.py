"""The patterns of expressions and parsers, matched in linear time by RE2. Pure.

Only the first part of a long text is searched, so that the time of a match is bounded too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import re2  # type: ignore[import-untyped]  # the package ships no types

from skep.pipelines.expressions.limits import PATTERN_LIMIT, PATTERN_MEMORY, SIZE_LIMIT


class BadPattern(ValueError):
    """The text is not a pattern that RE2 accepts."""


def compile_pattern(pattern: str) -> Any:
    """A compiled pattern; raises BadPattern."""
    if len(pattern) > PATTERN_LIMIT:
        raise BadPattern(f"the pattern exceeds {PATTERN_LIMIT} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY
    try:
        return re2.compile(pattern, options)
    except (re2.error, ValueError) as error:
        said = error.args[0] if error.args else ""
        told = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise BadPattern(f"{pattern!r} is not a valid pattern: {told}") from error


def matches(pattern: str) -> Callable[[Any], bool]:
    """A function: whether the pattern is found anywhere in a text."""
    search = compile_pattern(pattern).search

    def found(text: Any) -> bool:
        return search(_text(text)) is not None

    return found


def extract(pattern: str) -> Callable[[Any], str | None]:
    """A function: the first group of the first match, or the whole match; None without one."""
    compiled = compile_pattern(pattern)
    group = min(1, compiled.groups)

    def found(text: Any) -> str | None:
        match = compiled.search(_text(text))
        return None if match is None else match.group(group)

    return found


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"needs a text, not {type(text).__name__}")
    return text[:SIZE_LIMIT]
