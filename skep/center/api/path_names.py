"""Checks names and numbers in paths before they are looked up. Centers only.

A text that is not a valid name is refused (400); a valid name that does not exist is not found
(404).
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.errors import InvalidInput
from skep.model.jobs.job import NAME_WORDS, JobName
from skep.model.run import RUN_NAME, RunId

_DIGITS = 18
_NAME = {"type": "string", "pattern": RUN_NAME}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 10**_DIGITS - 1}

#: Schemas of path parameters, for the API's description.
RUN_NAMES: dict[str, Any] = {"run": _NAME, "identity": _NAME}
NUMBERS: dict[str, Any] = {"request": _NUMBER, "block": _NUMBER}


def run_name(text: str) -> str:
    """The text, if it is a valid run name; raises InvalidInput."""
    try:
        return msgspec.convert(text, RunId)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"{text[:70]!r} is not a valid run name; use 1 to 64 letters, digits, dots, "
            "dashes or underscores, and begin with a letter or a digit"
        ) from error


def job_name_in(text: str) -> str:
    """The text, if it is a valid job name; raises InvalidInput."""
    try:
        return msgspec.convert(text, JobName)
    except msgspec.ValidationError:
        raise InvalidInput(f"{text[:70]!r} is not a valid job name; use {NAME_WORDS}") from None


def number(text: str) -> int:
    """The id of a request or a block; raises InvalidInput."""
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS:
        raise InvalidInput(f"{text[:50]!r} is not an id; ids are decimal numbers")
    return int(text)
