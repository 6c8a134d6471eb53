"""How each engine compares text, and nothing else. Run by centers only.

The result is the same everywhere: names match exactly, spaces at the end included; folded
text ignores the case of ASCII letters and of no others. Values travel as parameters; percent
signs, underscores and backslashes in them mean themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.filter.checked import Match, Pattern

Expression = sa.ColumnElement[Any]
Truth = sa.ColumnElement[bool]
_HIGHEST = "\U0010ffff"
_BEFORE_SURROGATES, _AFTER_SURROGATES = "\ud7ff", "\ue000"


class TextMatching:
    """PostgreSQL. LIKE is exact under every collation; `lower` knows only ASCII under "C"."""

    #: An index finds names by their beginning. Under most collations PostgreSQL's do not.
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
        return column.startswith(text, autoescape=True)

    def _ends(self, column: Expression, text: str) -> Truth:
        return column.endswith(text, autoescape=True)

    def _contains(self, column: Expression, text: str) -> Truth:
        return column.contains(text, autoescape=True)


class SqliteText(TextMatching):
    """LIKE ignores case in SQLite, so that it is not used. `lower` knows only ASCII."""

    finds_prefixes = True

    def _folded(self, column: Expression) -> Expression:
        return sa.func.lower(column)

    def _starts(self, column: Expression, text: str) -> Truth:
        after = next_text(text)
        return column >= text if after is None else sa.and_(column >= text, column < after)

    def _ends(self, column: Expression, text: str) -> Truth:
        return sa.func.substr(column, -len(text)) == text

    def _contains(self, column: Expression, text: str) -> Truth:
        return sa.func.instr(column, text) > 0


class MysqlText(TextMatching):
    """`=` ignores spaces at the end, so that bytes are compared as well. `lower` folds every
    letter, so that a regular expression with both cases of each ASCII letter is used. LIKE on
    an index misses control characters and letters above U+FFFF, so that a prefix is a range."""

    finds_prefixes = True

    def one_of(self, column: Expression, texts: Sequence[str]) -> Truth:
        exact = sa.cast(column, sa.LargeBinary).in_([text.encode() for text in texts])
        return sa.and_(super().one_of(column, texts), exact)

    def _starts(self, column: Expression, text: str) -> Truth:
        # The shortest text sorts as if spaces followed it: the lowest one that can follow is NUL.
        found, after = [column >= f"{text}\0"], next_text(text)
        if after is not None:
            found.append(column < after)
        octets = text.encode()
        same = sa.func.left(sa.cast(column, sa.LargeBinary), len(octets)) == octets
        return sa.and_(*found, same)

    def fits(self, column: Expression, pattern: Pattern) -> Truth:
        if not pattern.fold or pattern.match is Match.ANY:
            return super().fits(column, pattern)
        begin = r"\A" if pattern.match in {Match.WHOLE, Match.STARTS} else ""
        end = r"\z" if pattern.match in {Match.WHOLE, Match.ENDS} else ""
        expression = f"{begin}{either_case(pattern.text)}{end}"
        return sa.collate(column, "utf8mb4_bin").regexp_match(expression)


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


_ENGINES = {"sqlite": SqliteText, "postgresql": TextMatching, "mysql": MysqlText}


def text_matching(engine: str) -> TextMatching:
    """For the engine of this name, as `Dialect.name` has it."""
    return _ENGINES[engine]()
