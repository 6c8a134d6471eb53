"""A scope: the labels of the objects that a caller may see and change. Pure.

Used by centers to check calls, and by the command line to check terms before it sends them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from skep.errors import InvalidInput
from skep.model.message_bounds import is_printable

#: Maximum terms of one scope, and maximum characters of one term.
TERMS_LIMIT = 64
TERM_LIMIT = 200


class Scope(msgspec.Struct, frozen=True):
    """Terms such as `team=a`. An object is inside if it has one of these labels; an empty scope
    covers everything."""

    labels: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether it limits anything."""
        return bool(self.labels)

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is inside."""
        if not self.labels:
            return True
        return any(labels.get(name) == value for name, value in map(split_term, self.labels))


#: The scope of a caller who has none.
EVERYTHING = Scope()


def split_term(term: str) -> tuple[str, str]:
    """Name and value of a term."""
    name, _, value = term.partition("=")
    return name, value


def checked_terms(terms: Iterable[str]) -> tuple[str, ...]:
    """The terms without duplicates; raises InvalidInput for one that is not `name=value`."""
    found = tuple(dict.fromkeys(terms))
    if len(found) > TERMS_LIMIT:
        raise InvalidInput(f"a scope has {len(found)} labels; the limit is {TERMS_LIMIT}")
    for term in found:
        name, value = split_term(term)
        if not name or not value or len(term) > TERM_LIMIT or not is_printable(term):
            raise InvalidInput(
                f"{term[:50]!r} is not a label; write name=value, at most {TERM_LIMIT} printable"
                " characters"
            )
    return found
