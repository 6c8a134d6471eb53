"""Names of earlier releases that documents and programs import: they work, and warn once."""

from __future__ import annotations

import importlib

import pytest

OLD_NAMES = [
    ("skep.model.states", "Failure", "skep.model.states", "FailureClass"),
    ("skep.streams.pump", "SinkPump", "skep.streams.sink_writer", "SinkWriter"),
]


@pytest.mark.parametrize(("old_home", "old", "home", "new"), OLD_NAMES)
def test_an_old_name_is_the_new_one(old_home: str, old: str, home: str, new: str) -> None:
    place = importlib.import_module(old_home)
    vars(place).pop(old, None)  # of an earlier look
    with pytest.warns(DeprecationWarning, match=rf"{old} is now \S*{new}") as warned:
        assert getattr(place, old) is getattr(importlib.import_module(home), new)
    assert len(warned) == 1


@pytest.mark.parametrize("home", sorted({row[0] for row in OLD_NAMES}))
def test_a_name_that_never_was_is_an_error(home: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'never_was'"):
        importlib.import_module(home).never_was  # noqa: B018 - the look is the test
