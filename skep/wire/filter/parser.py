"""Reads a filter into its syntax tree, in one pass and without regular expressions.

    filter = [term *(space term)]
    term   = ["-"] [name ":"] value *("," value)
    value  = "*" / ["*"] word ["*"] / (">" / ">=" / "<" / "<=") word / word ".." word
    word   = quoted / bare

Run by centers, the command line and the portal. It knows no fields: `check.py` does. A filter
that is too long or cannot be read raises InvalidFilter with the column.
"""

from __future__ import annotations

from dataclasses import dataclass

from skep.errors import InvalidFilter
from skep.model.filter.syntax import (
    COMPARISONS,
    TERMS_LIMIT,
    TEXT_LIMIT,
    VALUES_LIMIT,
    FilterTerm,
    FilterTree,
    FilterValue,
    Operator,
)
from skep.wire.filter.problems import problem_at

_QUOTE_IT = "put the whole value in double quotes"
_WILDCARDS = {
    (True, True): Operator.CONTAINS,
    (True, False): Operator.ENDS,
    (False, True): Operator.STARTS,
    (False, False): Operator.EQUALS,
}


def parse(text: str) -> FilterTree:
    """The tree of a filter; raises InvalidFilter."""
    _check_letters(text)
    scanner = _Scanner(text)
    terms: list[FilterTerm] = []
    while scanner.skip_spaces():
        if len(terms) == TERMS_LIMIT:
            raise scanner.wrong(f"a filter has at most {TERMS_LIMIT} terms; use fewer")
        terms.append(scanner.term())
    return FilterTree(tuple(terms))


def is_name(text: str) -> bool:
    """Whether a field can be called this."""
    rest = text.replace("_", "").replace("-", "")
    return text[:1].isalpha() and rest.isalnum() and text.isascii()


def _check_letters(text: str) -> None:
    if len(text) > TEXT_LIMIT:
        detail = f"the filter has {len(text)} characters, the limit is {TEXT_LIMIT}; shorten it"
        raise InvalidFilter(detail, TEXT_LIMIT + 1, len(text) - TEXT_LIMIT)
    for at, letter in enumerate(text):
        if letter == "\0" or "\ud800" <= letter <= "\udfff":
            raise problem_at(at, 1, "this character cannot be searched for; remove it")


@dataclass(slots=True)
class _Scanner:
    """The text, and how far it was read."""

    text: str
    at: int = 0

    def term(self) -> FilterTerm:
        start = self.at
        negated = self._take("-")
        if negated and (self._at_end() or self._next() == "-"):
            raise self.wrong("a term must follow the `-`, such as `-state:done`")
        name = self._field()
        values = [self._value(name)]
        while self._take(","):
            if len(values) == VALUES_LIMIT:
                raise self.wrong(f"a term has at most {VALUES_LIMIT} values; use fewer")
            values.append(self._value(name))
        return FilterTerm(name, tuple(values), negated, start + 1)

    def skip_spaces(self) -> bool:
        """Whether anything follows."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.at < len(self.text)

    def wrong(self, detail: str, start: int | None = None) -> InvalidFilter:
        """A problem from `start` to here, or of the character that comes next."""
        begin = self.at if start is None else start
        return problem_at(begin, max(1, self.at - begin), detail)

    def _field(self) -> str:
        """The name before a colon; "" when the term is free text."""
        end = self.at
        while end < len(self.text) and (self.text[end].isalnum() or self.text[end] in "_-"):
            end += 1
        name = self.text[self.at : end]
        if self.text[end : end + 1] != ":" or not is_name(name):
            return ""
        self.at = end + 1
        return name.lower()

    def _value(self, name: str) -> FilterValue:
        start = self.at
        value = self._comparison(name) or self._pattern(name)
        if self.at < len(self.text) and not self._at_end() and self._next() != ",":
            raise self._misplaced()
        return FilterValue(value.operator, value.text, value.upper, start + 1)

    def _comparison(self, name: str) -> FilterValue | None:
        for mark, operator in COMPARISONS.items():
            if self._take(mark):
                return FilterValue(operator, self._needed_word(name))
        return None

    def _pattern(self, name: str) -> FilterValue:
        before = self._take("*")
        start = self.at
        word = self._word(name)
        if self.text.startswith("..", self.at) and not before:
            return self._range(name, start, word)
        after = self._take("*")
        if word is None:
            if not before and not after:
                raise self._missing(name)
            return FilterValue(Operator.ANY)
        return FilterValue(_WILDCARDS[before, after], word)

    def _range(self, name: str, start: int, low: str | None) -> FilterValue:
        self.at += 2
        high = self._word(name)
        if low is None and high is None:
            raise self.wrong("a range needs a bound, such as `2..5` or `2..`", start)
        if high is None:
            return FilterValue(Operator.AT_LEAST, low or "")
        if low is None:
            return FilterValue(Operator.AT_MOST, high)
        return FilterValue(Operator.RANGE, low, high)

    def _needed_word(self, name: str) -> str:
        word = self._word(name)
        if word is None:
            raise self._missing(name)
        return word

    def _word(self, name: str) -> str | None:
        """A quoted or a bare word; None when there is neither."""
        return self._quoted() if self._take('"') else self._bare(name)

    def _bare(self, name: str) -> str | None:
        start = self.at
        while not self._at_end() and self._next() not in ',"*':
            if self.text.startswith("..", self.at):
                break
            if self._next() == ":" and not name:
                raise self._not_a_field(start)
            self.at += 1
        return self.text[start : self.at] or None

    def _quoted(self) -> str:
        start, pieces = self.at - 1, []
        while not self._take('"'):
            if self.at == len(self.text):
                raise self.wrong('the closing `"` is missing', start)
            if self._next() == "\\" and self.text[self.at + 1 : self.at + 2] in {'"', "\\"}:
                self.at += 1
            pieces.append(self._next())
            self.at += 1
        if not pieces:
            detail = "the value is empty; to find rows without a value write `-name:*`"
            raise self.wrong(detail, start)
        return "".join(pieces)

    def _missing(self, name: str) -> InvalidFilter:
        what = f"the field `{name}` has no value" if name else "a value is missing"
        return self.wrong(f"{what} here; write one, such as `name:value`")

    def _misplaced(self) -> InvalidFilter:
        letter = self._next()
        if "*" in {letter, self.text[self.at - 1]}:
            return self.wrong(
                f"a `*` must be the first or the last character; to search for it, {_QUOTE_IT}"
            )
        if letter == ".":
            return self.wrong(f"`..` must stand between two bounds; to search for it, {_QUOTE_IT}")
        return self.wrong(f"{letter!r} cannot stand here; {_QUOTE_IT}")

    def _not_a_field(self, start: int) -> InvalidFilter:
        before = self.text[start : self.at]
        return self.wrong(
            f"{before[:40]!r} is not a field name; to search for text with a colon, {_QUOTE_IT}",
            start,
        )

    def _next(self) -> str:
        return self.text[self.at]

    def _at_end(self) -> bool:
        """Of the term."""
        return self.at == len(self.text) or self.text[self.at].isspace()

    def _take(self, mark: str) -> bool:
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True
