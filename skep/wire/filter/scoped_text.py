"""A filter as text, limited to the scope of a caller. Pure; used by centers.

For filters that are stored and read again by another process, such as those of bulk operations:
what is stored says itself what it is limited to.
"""

from __future__ import annotations

from skep.model.filter.scoped import scope_in_words
from skep.model.filter.syntax import FilterTree
from skep.model.people.scope import Scope
from skep.wire.filter.parser import parse


def text_within(text: str, scope: Scope) -> str:
    """The filter with the condition of the scope; raises InvalidFilter. It is parsed first: joined
    as text, an open quote in it could take the condition away."""
    if not scope:
        return text
    return str(FilterTree((*parse(text).terms, scope_in_words(scope))))
