"""The syntax tree of a filter, and its canonical text. Pure data; used by every process.

`str(tree)` is a filter that parses to the same tree. The tree knows no fields and no types:
`wire/filter/check.py` gives it a meaning. Columns count characters from 1; they are for error
messages and do not count when trees are compared.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum

#: Bounds of one filter, so that reading and answering it stays cheap.
TEXT_LIMIT = 2000
TERMS_LIMIT = 50
VALUES_LIMIT = 100

#: What ends a bare value, or means something in it.
_SPECIAL = frozenset('",*')


class Operator(StrEnum):
    """How a value is compared; the text is how people write it."""

    EQUALS = "a"
    STARTS = "a*"
    ENDS = "*a"
    CONTAINS = "*a*"
    ANY = "*"
    GREATER = ">a"
    AT_LEAST = ">=a"
    LESS = "<a"
    AT_MOST = "<=a"
    RANGE = "a..b"


COMPARISONS = {
    ">=": Operator.AT_LEAST,
    "<=": Operator.AT_MOST,
    ">": Operator.GREATER,
    "<": Operator.LESS,
}
_MARKS = {operator: mark for mark, operator in COMPARISONS.items()}


@dataclass(frozen=True, slots=True)
class FilterValue:
    """One value of a term; `upper` is the second bound of a range."""

    operator: Operator
    text: str = ""
    upper: str = ""
    column: int = dataclasses.field(default=0, compare=False)

    def __str__(self) -> str:
        return self.written()

    def written(self, *, free: bool = False) -> str:
        """As text; `free` for a value that has no field before it."""
        text = quoted_if_needed(self.text, free=free)
        match self.operator:
            case Operator.ANY:
                return "*"
            case Operator.STARTS:
                return f"{text}*"
            case Operator.ENDS:
                return f"*{text}"
            case Operator.CONTAINS:
                return f"*{text}*"
            case Operator.RANGE:
                return f"{text}..{quoted_if_needed(self.upper, free=free)}"
            case _:
                return f"{_MARKS.get(self.operator, '')}{text}"


@dataclass(frozen=True, slots=True)
class FilterTerm:
    """A field and the values of which one must fit; without a field it is free text."""

    field: str
    values: tuple[FilterValue, ...]
    negated: bool = False
    column: int = dataclasses.field(default=0, compare=False)

    def __str__(self) -> str:
        name = f"{self.field}:" if self.field else ""
        values = ",".join(value.written(free=not self.field) for value in self.values)
        return f"{'-' if self.negated else ''}{name}{values}"


@dataclass(frozen=True, slots=True)
class FilterTree:
    """Terms, combined with AND; a filter without terms matches everything."""

    terms: tuple[FilterTerm, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))


def quoted_if_needed(text: str, *, free: bool = False) -> str:
    """The text as a value of a filter: bare where that reads back as the same text."""
    ambiguous = free and (":" in text or text.startswith("-"))
    return text if _is_bare(text) and not ambiguous else quoted(text)


def quoted(text: str) -> str:
    """The text in quotes, in which only quotes and backslashes have a meaning."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_bare(text: str) -> bool:
    if not text or text[0] in "<>=" or text[-1] == "." or ".." in text:
        return False
    return not any(letter in _SPECIAL or letter.isspace() for letter in text)
