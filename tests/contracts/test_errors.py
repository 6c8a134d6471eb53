"""The error tree: what its drawing says is what the classes are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from skep import errors
from skep.errors import SkepError

LINE = re.compile(r"^ {4}(?P<lines>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: +(?P<status>\d{3}|-))?")
#: The two that no center ever sends have no status in the drawing.
NEVER_SENT = {"CenterUnreachable", "ConfigurationError"}


def tree(error: type[SkepError]) -> Iterator[type[SkepError]]:
    """The classes of errors.py, parents first, in the order in which they are written."""
    yield error
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


def drawing() -> Iterator[tuple[str, str | None, str | None]]:
    """(name, parent, status) of every line of the drawing."""
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := LINE.match(line):
            depth = len(match["lines"]) // 4
            above[depth:] = [match["name"]]
            yield match["name"], above[depth - 1] if depth else None, match["status"]


def test_the_drawing_shows_the_classes_in_their_order() -> None:
    classes = [(e.__name__, e.__base__.__name__ if e.__base__ else "") for e in tree(SkepError)]
    drawn = [(name, parent or "Exception") for name, parent, _ in drawing()]
    assert drawn == classes


def test_the_drawing_shows_the_status_of_each() -> None:
    drawn = {name: status for name, _, status in drawing() if status not in {None, "-"}}
    sent = {e.__name__: str(e.status) for e in tree(SkepError) if e is not SkepError}
    assert drawn == {name: status for name, status in sent.items() if name not in NEVER_SENT}


def test_codes_are_unique_and_plain() -> None:
    codes = Counter(error.code for error in tree(SkepError))
    assert [code for code, count in codes.items() if count > 1] == []
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(_[a-z]+)*", code)] == []


def test_every_error_has_a_title_of_its_own() -> None:
    titles = Counter(error.title for error in tree(SkepError))
    assert [title for title, count in titles.items() if count > 1] == []


@pytest.mark.parametrize("error", list(tree(SkepError)), ids=lambda error: error.__name__)
def test_a_caller_who_must_change_something_is_not_told_to_retry(error: type[SkepError]) -> None:
    """Retryable means: the same call may succeed later. A 4xx never does."""
    assert not (error.retryable and 400 <= error.status < 500)
