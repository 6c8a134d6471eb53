"""The contract between generators and the feed of a run. Pure.

A source produces a batch only when the feed asks for it. A batch is on disk before the feed asks
for the next one, so neither side holds more than one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from skep.errors import InvalidInput
from skep.model.jobs.job import Generator
from skep.model.request import NewRequest, Offered

BATCH = 1000
#: Seconds for a generator without a time limit.
TIME_LIMIT = 3600.0


class GeneratorFailed(Exception):
    """A restart cannot fix it; the text says why."""


class GeneratorCrashed(Exception):
    """Its process was killed from outside: it is restarted."""


class Complaint(str):
    """Stands for an entry that could not be read; it is counted as invalid."""

    __slots__ = ()


#: A URI, a line of JSON, the fields of a request, or a complaint.
Raw = str | dict[str, Any]
Batches = AsyncGenerator[list[Raw], None]

_line = msgspec.json.Decoder(NewRequest)


def request_of(raw: Raw) -> Offered:
    """The request of an entry; raises InvalidInput."""
    if isinstance(raw, Complaint):
        raise InvalidInput(str(raw))
    try:
        if isinstance(raw, dict):
            return msgspec.convert(raw, NewRequest)
        return _line.decode(raw) if raw.startswith("{") else raw
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{str(raw)[:200]!r}: {error}") from error


def settled(offered: Offered, generator: Generator, place: int, number: int) -> Offered:
    """Add the generator's priority to a request without one, and bind `again` to its place: a
    repeated batch is still the same requests."""
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
