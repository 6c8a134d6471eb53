"""What a search looks for, and how it is found in the texts of a piece. Pure.

Words match anywhere in a row, without regard to the case of ASCII letters. Patterns are RE2 and
take time linear in the text, whatever they are; they look at a row: a text, then a separator and
the fields as JSON. Newlines of a text are carriage returns there, so `.` matches them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from typing import Any

import re2  # type: ignore[import-untyped]  # the package ships no types
from msgspec import Struct

from skep.errors import InvalidInput
from skep.logs.center.summary import hashes_of, may_contain
from skep.logs.line_format import printable
from skep.model.filter.checked import CheckedFilter, CheckedTerm
from skep.model.filter.matching import matches
from skep.model.logs import (
    HIGHEST_LEVEL,
    LOWEST_LEVEL,
    LogLine,
    LogSource,
    LogSourceKind,
    level_bit,
    level_bits_from,
)
from skep.store.ports.logs import PieceSelection, PiecesInside

PATTERN_LIMIT = 1000
WORD_LIMIT = 1000
WORDS_LIMIT = 20
_MEMORY = 8 * 2**20
#: Words of the levels, by tens.
LEVEL_WORDS = ("debug", "debug", "info", "warning", "error", "critical")
#: Facts that depend on the source of a line alone.
_SOURCE_FACTS = frozenset({"source", "run", "job", "agent"})
#: Their run names the job; lines of other runs are named after it.
_NAMED_BY_RUN = frozenset({LogSourceKind.APP, LogSourceKind.DOWNLOADER})
#: Patterns that name the beginning or the end of all text, or switch the meaning of ^ and $:
#: they are asked row by row.
_WHOLE_TEXT = re.compile(r"\\[AzZ]|\(\?[a-zA-Z]*-[a-zA-Z]*m")


class LogQuery(Struct, frozen=True):
    """A line is found when it meets all conditions; every line meets an empty condition."""

    words: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    pattern: str = ""
    #: This level and above.
    level: int = 0
    kinds: tuple[LogSourceKind, ...] = ()
    sources: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    #: One bit for each level that fits; 0 = all.
    level_bits: int = 0
    #: What the caller may read; None = everything.
    inside: PiecesInside | None = None
    #: Terms of the filter that are checked on the facts of each line.
    terms: tuple[CheckedTerm, ...] = ()

    def fits_source(self, source: LogSource) -> bool:
        """False only when no line of this source fits."""
        asked = [term for term in self.terms if _SOURCE_FACTS.issuperset(term.facts)]
        facts = _source_facts(source.kind, source.name, source.run, source.agent)
        return not asked or matches(CheckedFilter("logs", tuple(asked)), facts)

    def fits_level(self, level: int) -> bool:
        return level >= self.level and (
            not self.level_bits or bool(self.level_bits & level_bit(level))
        )

    def fits_line(self, line: LogLine) -> bool:
        """Whether the terms match; words, pattern, level and time were checked before."""
        return not self.terms or matches(CheckedFilter("logs", self.terms), line_facts(line))

    def selection(self, until: float | None = None) -> PieceSelection:
        """The pieces that may have such lines, at or before `until`."""
        ends = [end for end in (self.until, until) if end is not None and end < inf]
        return PieceSelection(
            kinds=self.kinds,
            names=self.sources,
            runs=self.runs,
            agents=self.agents,
            levels=self._wanted_levels(),
            since=self.since,
            until=min(ends, default=None),
            inside=self.inside,
        )

    def _wanted_levels(self) -> int:
        least = level_bits_from(self.level) if self.level else 0
        return least & self.level_bits if least and self.level_bits else least or self.level_bits


def line_facts(line: LogLine) -> dict[str, object]:
    """A line as filters see it."""
    return {
        **_source_facts(line.kind, line.source, line.run, line.agent),
        "level": level_word(line.level),
        "line": line.text,
        "at": line.time,
    }


def _source_facts(kind: LogSourceKind, name: str, run: str, agent: str) -> dict[str, object]:
    job = (run.rpartition("-")[0] or run) if kind in _NAMED_BY_RUN else name if run else ""
    return {"source": str(kind), "run": run, "job": job, "agent": agent}


def level_word(level: int) -> str:
    """`warning` for 30 to 39."""
    return LEVEL_WORDS[min(max(level, LOWEST_LEVEL), HIGHEST_LEVEL) // 10]


class Matcher:
    """A compiled query. Raises InvalidInput for a pattern that is not valid."""

    def __init__(self, query: LogQuery) -> None:
        words, without = _checked(query.words), _checked(query.without)
        self._words = [_row_text(word) for word in words]
        self._without = [_row_text(word) for word in without]
        self._pattern = compiled(query.pattern) if query.pattern else None
        self._by_row = _WHOLE_TEXT.search(query.pattern) is not None
        self._hashes = set().union(*(hashes_of(word.encode()) for word in words))
        #: Numbers and other scripts are searched as they are.
        self._has_letters = any(word.upper() != word for word in (*self._words, *self._without))
        self.takes_all = not (self._words or self._without or self._pattern)

    def may_be_in(self, summary: bytes) -> bool:
        """False only when the piece with this summary has no such line."""
        return may_contain(summary, self._hashes)

    def rows_in(self, texts: bytes) -> list[int]:
        """Numbers of the rows that fit, in order."""
        lowered = texts.lower() if self._has_letters else texts
        return [
            number
            for number, start, end in self._candidates(texts, lowered)
            if all(lowered.find(word, start, end) >= 0 for word in self._words[1:])
            and not any(lowered.find(word, start, end) >= 0 for word in self._without)
            and self._fits(texts, start, end)
        ]

    def _candidates(self, texts: bytes, lowered: bytes) -> Iterator[tuple[int, int, int]]:
        """(number, start, end) of rows that have the first word, or else fit the pattern."""
        if self._words:
            return _rows_at(lowered, lambda at: lowered.find(self._words[0], at))
        if self._pattern is not None and not self._by_row:
            pattern = self._pattern
            return _rows_at(texts, lambda at: _start_of(pattern.search(texts, at)))
        return _rows_at(texts, lambda at: at)

    def _fits(self, texts: bytes, start: int, end: int) -> bool:
        if self._pattern is None or not (self._by_row or self._words):
            return True
        return self._pattern.search(texts[start:end]) is not None


def _rows_at(texts: bytes, find: Any) -> Iterator[tuple[int, int, int]]:
    """Each row in which `find` finds something, once; it is asked from a position onward."""
    number = counted = at = 0
    while 0 <= at <= len(texts) and (found := find(at)) >= 0:
        number += texts.count(b"\n", counted, found)
        counted = found
        start = texts.rfind(b"\n", 0, found) + 1
        end = texts.find(b"\n", found)
        yield number, start, end if end >= 0 else len(texts)
        if end < 0:
            return
        at = end + 1


def _start_of(match: Any) -> int:
    return -1 if match is None else match.start()


def _checked(words: tuple[str, ...]) -> tuple[str, ...]:
    if len(words) > WORDS_LIMIT:
        raise InvalidInput(f"{len(words)} words to search for; give {WORDS_LIMIT} at most")
    for word in words:
        if len(word) > WORD_LIMIT:
            raise InvalidInput(f"a word of {len(word)} characters; give {WORD_LIMIT} at most")
    return tuple(printable(word) for word in words if word)


def _row_text(word: str) -> bytes:
    """As rows hold it."""
    return word.replace("\n", "\r").encode("utf-8", "replace").lower()


def compiled(pattern: str) -> Any:
    """Raises InvalidInput that says what is wrong with the pattern."""
    if len(pattern) > PATTERN_LIMIT:
        raise InvalidInput(f"a pattern of {len(pattern)} characters; give {PATTERN_LIMIT} at most")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.never_nl = True
    options.max_mem = _MEMORY
    try:
        return re2.compile(b"(?m)" + pattern.encode("utf-8", "replace"), options)
    except (re2.error, ValueError) as error:
        raise InvalidInput(f"pattern {pattern!r} is not valid: {_said(error)}") from error


def _said(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
