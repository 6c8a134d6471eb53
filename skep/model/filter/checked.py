"""A filter whose fields, operators and values were checked against a table. Pure data.

Made by `wire/filter/check.py`; `matching.py` evaluates it on one row in memory and
`store/sql/filters` compiles it to SQL. Both follow the same rules:

- All terms must fit. A term fits when one of its conditions fits one of its facts.
- A fact that is absent (None or an empty text) fits no condition, so every negated term.
- Names are compared exactly; `fold` ignores the case of ASCII letters only, because the
  databases disagree about all others.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

Number = int | float


class Match(StrEnum):
    """Where a pattern's text must be."""

    WHOLE = "whole"
    STARTS = "starts"
    ENDS = "ends"
    CONTAINS = "contains"
    #: Any text but an empty one.
    ANY = "any"


class Pattern(msgspec.Struct, frozen=True, tag="pattern"):
    """A condition on text. With `fold` the text is in lower case."""

    match: Match
    text: str = ""
    fold: bool = False


class Between(msgspec.Struct, frozen=True, tag="between"):
    """A condition on a number; None = no bound. Without bounds any number fits."""

    low: Number | None = None
    high: Number | None = None
    #: The bound itself does not fit.
    above_low: bool = False
    below_high: bool = False


class LabelIs(msgspec.Struct, frozen=True, tag="label"):
    """A condition on labels: one is there, or has a value that fits. "" = any label."""

    name: str = ""
    value: Pattern | None = None


Condition = Pattern | Between | LabelIs


class CheckedTerm(msgspec.Struct, frozen=True):
    """One of the conditions must fit one of the facts."""

    facts: tuple[str, ...]
    conditions: tuple[Condition, ...]
    negated: bool = False


class CheckedFilter(msgspec.Struct, frozen=True):
    """What a resource is searched for, as of `now`."""

    resource: str
    terms: tuple[CheckedTerm, ...] = ()
    now: float = 0.0
