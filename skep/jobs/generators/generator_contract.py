"""What every kind of generator is to the one who feeds a run from it. Pure.

A source hands out batches when it is asked, never before: a batch is on disk when the next
one is asked for, so neither side ever holds more than one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from skep.errors import InvalidInput
from skep.model.jobs.job import Generator
from skep.model.request import NewRequest, Offered

BATCH = 1000
#: Seconds for a generator whose limits say nothing.
TIME_LIMIT = 3600.0


class GeneratorFailed(Exception):
    """It cannot be mended by beginning again; the text says why."""


class GeneratorCrashed(Exception):
    """Its process was ended from outside: it is begun again."""


class Complaint(str):
    """Stands for something that could not be read; it is counted as not valid."""

    __slots__ = ()


#: A URI, a line of JSON, the fields of a request, or a complaint.
Raw = str | dict[str, Any]
Batches = AsyncGenerator[list[Raw], None]

_line = msgspec.json.Decoder(NewRequest)


def request_of(raw: Raw) -> Offered:
    """What a generator meant; raises InvalidInput."""
    if isinstance(raw, Complaint):
        raise InvalidInput(str(raw))
    try:
        if isinstance(raw, dict):
            return msgspec.convert(raw, NewRequest)
        return _line.decode(raw) if raw.startswith("{") else raw
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{str(raw)[:200]!r}: {error}") from error


def settled(offered: Offered, generator: Generator, place: int, number: int) -> Offered:
    """With the generator's priority where it has none of its own, and with `again` bound to
    its place: told twice by us it is still one request."""
    if isinstance(offered, str):
        if generator.priority is None:
            return offered
        return NewRequest(offered, priority=generator.priority)
    if offered.priority is None and generator.priority is not None:
        offered = msgspec.structs.replace(offered, priority=generator.priority)
    if offered.again:
        fingerprint = f"again {place} {number}"
        offered = msgspec.structs.replace(offered, again=False, fingerprint=fingerprint)
    return offered
