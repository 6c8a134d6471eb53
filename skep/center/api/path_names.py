"""Names and numbers in paths: checked before anything looks for them. Centers only.

What cannot be a name is told so (400), what merely is none is not found (404).
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.errors import InvalidInput
from skep.model.run import RUN_NAME, RunId

_DIGITS = 18
_NAME = {"type": "string", "pattern": RUN_NAME}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 10**_DIGITS - 1}

#: Schemas of path parameters, for the API's description.
RUN_NAMES: dict[str, Any] = {"run": _NAME, "identity": _NAME}
NUMBERS: dict[str, Any] = {"request": _NUMBER, "block": _NUMBER}


def run_name(text: str) -> str:
    """A name that a run can have."""
    try:
        return msgspec.convert(text, RunId)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"{text[:70]!r} cannot be a run's name; it has 1 to 64 letters, digits, dots, "
            "dashes or underscores, and begins with a letter or a digit"
        ) from error


def number(text: str) -> int:
    """An id of a request or a block."""
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS:
        raise InvalidInput(f"{text[:50]!r} is not an id; ids are decimal numbers")
    return int(text)
