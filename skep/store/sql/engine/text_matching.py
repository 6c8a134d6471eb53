"""How databases compare text. Dialects override what differs. Run by centers only.

The result is the same everywhere: names match exactly, spaces at the end included; folded
text ignores the case of ASCII letters and of no others. Values travel as parameters; percent
signs, underscores and backslashes in them mean themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from skep.model.filter.checked import Match, Pattern

Expression = sa.ColumnElement[Any]
Truth = sa.ColumnElement[bool]
_HIGHEST = "\U0010ffff"
_BEFORE_SURROGATES, _AFTER_SURROGATES = "\ud7ff", "\ue000"


class by_bytes(FunctionElement[str]):  # noqa: N801 - reads as a function of SQL
    """A text that is compared by its bytes. Names are so in other databases anyway; PostgreSQL
    would compare by the language of the database."""

    inherit_cache = True
    type = sa.String()


@compiles(by_bytes)
def _as_it_is(element: by_bytes, compiler: Any, **more: Any) -> str:
    return str(compiler.process(element.clauses, **more))


class TextMatching:
    """As PostgreSQL does. LIKE is exact under every collation; `lower` knows only ASCII under
    "C"."""

    #: Every index finds names by their beginning. Under most collations PostgreSQL's do not: there
    #: only those in the order of bytes do.
    finds_prefixes = False

    def one_of(self, column: Expression, texts: Sequence[str]) -> Truth:
        """The column is one of the texts."""
        return column == texts[0] if len(texts) == 1 else column.in_(texts)

    def fits(self, column: Expression, pattern: Pattern) -> Truth:
        """The column fits a pattern."""
        target = self._folded(column) if pattern.fold else column
        match pattern.match:
            case Match.WHOLE:
                return self.one_of(target, [pattern.text])
            case Match.STARTS:
                return self._starts(target, pattern.text)
            case Match.ENDS:
                return self._ends(target, pattern.text)
            case Match.CONTAINS:
                return self._contains(target, pattern.text)
            case Match.ANY:
                return sa.func.length(column) > 0

    def _folded(self, column: Expression) -> Expression:
        return sa.func.lower(sa.collate(column, "C"))

    def _starts(self, column: Expression, text: str) -> Truth:
        # A range and not LIKE: a prepared statement finds it in an index, whatever the text.
        ordered, after = by_bytes(column), next_text(text)
        return ordered >= text if after is None else sa.and_(ordered >= text, ordered < after)

    def _ends(self, column: Expression, text: str) -> Truth:
        return column.endswith(text, autoescape=True)

    def _contains(self, column: Expression, text: str) -> Truth:
        return column.contains(text, autoescape=True)


def next_text(text: str) -> str | None:
    """The first text after all that begin with this one, by code points; None = there is none."""
    kept = text.rstrip(_HIGHEST)
    if not kept:
        return None
    last = kept[-1]
    after = _AFTER_SURROGATES if last == _BEFORE_SURROGATES else chr(ord(last) + 1)
    return kept[:-1] + after


def either_case(text: str) -> str:
    """A regular expression for the text, in which ASCII letters have no case."""
    return "".join(map(_letter, text))


def _letter(letter: str) -> str:
    if not letter.isascii() or letter.isdigit():
        return letter
    if letter.isalpha():
        return f"[{letter.lower()}{letter.upper()}]"
    return f"\\{letter}"
