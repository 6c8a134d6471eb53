"""What is wrong with a filter, as one InvalidFilter: the place, the fault, what is known.

Run by centers, the command line and the portal. Names that are known come with the most
similar one first.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

from skep.errors import InvalidFilter

#: Letters of a wrong word that are shown and compared; longer ones are not near anything.
_SHOWN = 40
#: Similarity from which a word may be meant; 1 = the same.
_NEAR = 0.6
#: Names of a list that are shown.
_LISTED = 40


def problem_at(start: int, length: int, detail: str) -> InvalidFilter:
    """A problem of `length` characters from an offset that begins with 0."""
    return InvalidFilter(f"column {start + 1}: {detail}", start + 1, length)


def unknown(what: str, word: str, known: Iterable[str], column: int) -> InvalidFilter:
    """A word that is not one of the known ones."""
    listed = by_similarity(word, known)
    shown = ", ".join(f"`{name}`" for name in listed[:_LISTED])
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    detail = f"{word[:_SHOWN]!r} is not {what}; use {shown}{more}"
    return problem_at(column - 1, len(word), detail)


def by_similarity(word: str, known: Iterable[str]) -> list[str]:
    """The most similar first; those that are equally similar in their own order."""
    typed = word[:_SHOWN].lower()
    return sorted(known, key=lambda name: -_similarity(typed, name))


def similar(word: str, known: Iterable[str]) -> list[str]:
    """Only names that a typing error could explain."""
    typed = word[:_SHOWN].lower()
    return [name for name in by_similarity(word, known) if _similarity(typed, name) > _NEAR]


def _similarity(typed: str, name: str) -> float:
    prefix = 1.0 if typed and name.startswith(typed) else 0.0
    return prefix + SequenceMatcher(None, typed, name).ratio()
