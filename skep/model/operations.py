"""Bulk operations as data: a row that centers process, and the results of its objects. Pure.

Used by centers, by clients and by the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec

#: Key of an object: the number of a request, else a name.
Key = int | str
Word = Literal["done", "skipped", "failed"]
#: Examples that are kept of each result, and results that are kept apart.
EXAMPLES = 5
REASONS = 30
EXAMPLE_LIMIT = 300
#: Notes that are kept.
NOTES = 20
_OTHER = "other reasons"


class OperationState(StrEnum):
    """An operation first fixes its set (`collecting`), then works it off."""

    WAITING = "waiting"
    COLLECTING = "collecting"
    WORKING = "working"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


OPEN_OPERATIONS = (OperationState.WAITING, OperationState.COLLECTING, OperationState.WORKING)


class OperationResult(msgspec.Struct, frozen=True):
    """Objects with the same outcome for the same reason."""

    outcome: Word
    #: Why; "" for what was simply done.
    reason: str
    #: Number of objects.
    count: int
    #: Some of the objects.
    examples: list[str] = []


class OperationLease(msgspec.Struct, frozen=True):
    """Proof that a center works on an operation. A later lease has a higher number."""

    operation: int
    holder: str
    number: int


class NewOperation(msgspec.Struct, frozen=True):
    """What is asked for; the store adds the rest."""

    resource: str
    act: str
    #: As the user wrote it.
    filter: str
    creator: str
    #: Relative times of the filter count from here; what is made later is not touched.
    moment: float
    #: Maximum number of objects per second; 0 = the limit of the act.
    rate: int = 0
    arguments: dict[str, Any] = {}
    #: The operation fails before it changes anything when more objects match; None = no limit.
    confirmed: int | None = None
    #: A second operation with this key is not stored; "" = always stored.
    once: str = ""


class Operation(msgspec.Struct, frozen=True):
    """One act on everything that a filter matched at its start."""

    id: int
    asked: NewOperation
    state: OperationState
    #: Objects in the set. Still growing while the operation is collecting.
    matched: int
    #: Objects that are processed.
    settled: int
    results: list[OperationResult]
    created_at: float
    started_at: float = 0.0
    ended_at: float = 0.0
    #: Why it failed.
    error: str = ""
    #: The center that works on it; "" = none.
    holder: str = ""
    lease: int = 0
    #: How far its set is collected: a key of the listing, as JSON.
    position: str = ""
    #: The newest key at its start, as JSON; "" = keys do not grow with time.
    bound: str = ""
    #: What else there is to know, such as the job revision that a run follows now.
    notes: list[str] = []

    @property
    def proof(self) -> OperationLease:
        return OperationLease(self.id, self.holder, self.lease)

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_OPERATIONS


class OperationPart(msgspec.Struct, frozen=True):
    """A part of the set that is not processed yet."""

    no: int
    keys: list[Key]


class FilePiece(msgspec.Struct, frozen=True):
    """Lines that one part adds to the file of an operation."""

    lines: int
    #: Before compression.
    size: int
    #: A zstd frame.
    data: bytes


class OperationFile(msgspec.Struct, frozen=True):
    """The file that an operation has made so far."""

    pieces: int = 0
    lines: int = 0
    #: Before compression.
    bytes: int = 0


def result_of(outcome: Word, reason: str, names: Sequence[object]) -> list[OperationResult]:
    """One result for these objects; none when there are no objects."""
    if not names:
        return []
    shown = [str(name)[:EXAMPLE_LIMIT] for name in names[:EXAMPLES]]
    return [OperationResult(outcome, reason, len(names), shown)]


def added(
    known: Iterable[OperationResult], more: Iterable[OperationResult]
) -> list[OperationResult]:
    """Both together. What would be one reason too many is counted under one name."""
    found: dict[tuple[str, str], OperationResult] = {}
    for one in (*known, *more):
        key = (one.outcome, one.reason)
        if key not in found and len(found) >= REASONS:
            key = (one.outcome, _OTHER)
        before = found.get(key, OperationResult(one.outcome, key[1], 0))
        found[key] = msgspec.structs.replace(
            before,
            count=before.count + one.count,
            examples=[*before.examples, *one.examples][:EXAMPLES],
        )
    return list(found.values())
