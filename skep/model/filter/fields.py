"""Fields that filters may use, per resource, as data. Pure; used by every process.

The tables themselves are in `wire/filter/tables.py`. Help, completion, the reference page and
the errors all come from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from skep.model.filter.syntax import Operator

_WILD = (Operator.STARTS, Operator.ENDS, Operator.CONTAINS, Operator.ANY)
_ORDERED = (
    *(Operator.GREATER, Operator.AT_LEAST, Operator.LESS, Operator.AT_MOST),
    *(Operator.RANGE, Operator.ANY),
)


class FieldType(StrEnum):
    """What the values of a field are."""

    #: One of some words; case does not matter.
    WORD = "word"
    #: A name, compared exactly.
    NAME = "name"
    #: Text in which a value is found anywhere; the case of ASCII letters does not matter.
    TEXT = "text"
    #: A host name, compared in lower case.
    HOST = "host"
    #: A whole number.
    INTEGER = "integer"
    #: A span of time, in seconds.
    DURATION = "duration"
    #: A number of bytes.
    SIZE = "size"
    #: A point in time, in seconds since the epoch.
    TIME = "time"
    #: The earliest moment of another field (`since`).
    SINCE = "since"
    #: The moment before which another field must be (`until`).
    UNTIL = "until"
    #: A label, by name or by name and value.
    LABEL = "label"
    #: The name of a failure group, or its part before the `@`.
    GROUP = "group"


OPERATORS: dict[FieldType, tuple[Operator, ...]] = {
    FieldType.WORD: (Operator.EQUALS,),
    FieldType.NAME: (Operator.EQUALS, *_WILD),
    FieldType.TEXT: (Operator.EQUALS, *_WILD),
    FieldType.HOST: (Operator.EQUALS, *_WILD),
    FieldType.INTEGER: (Operator.EQUALS, *_ORDERED),
    FieldType.DURATION: (Operator.EQUALS, *_ORDERED),
    FieldType.SIZE: (Operator.EQUALS, *_ORDERED),
    FieldType.TIME: (Operator.EQUALS, *_ORDERED),
    FieldType.SINCE: (Operator.EQUALS,),
    FieldType.UNTIL: (Operator.EQUALS,),
    FieldType.LABEL: (Operator.EQUALS, Operator.STARTS, Operator.ANY),
    FieldType.GROUP: (Operator.EQUALS, Operator.ANY),
}


class Field(msgspec.Struct, frozen=True):
    """One field of a resource."""

    name: str
    type: FieldType
    #: One sentence.
    help: str
    #: Values as people write them after the colon.
    examples: tuple[str, ...]
    #: An index finds the rows on every database; without one they are scanned.
    indexed: bool = False
    #: The words of a `WORD` field.
    words: tuple[str, ...] = ()
    #: Further words that stand for several of them.
    groups: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    #: Other names of the field.
    aliases: tuple[str, ...] = ()
    #: The field that `SINCE` and `UNTIL` bound.
    of: str = ""

    @property
    def operators(self) -> tuple[Operator, ...]:
        return OPERATORS[self.type]

    @property
    def fact(self) -> str:
        """The name under which rows have the value."""
        return self.of or self.name


class FieldTable(msgspec.Struct, frozen=True):
    """The fields of one resource."""

    #: Plural, as in the API: `requests`.
    resource: str
    fields: tuple[Field, ...]
    #: Fields in which free text is searched.
    text: tuple[str, ...]

    def find(self, name: str) -> Field | None:
        """The field of this name or alias."""
        return next((one for one in self.fields if name in {one.name, *one.aliases}), None)

    def names(self) -> Iterator[str]:
        """Without aliases, in the order of the table."""
        return (one.name for one in self.fields)
