"""The store's contract for bulk operations and for what a filter finds. Used by `operations`.

Run by centers only. The set of an operation is stored in parts, so that any center can continue
where another one stopped. The rules of `store/ports` apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from skep.model.filter.checked import CheckedFilter
from skep.model.operations import (
    FilePiece,
    Key,
    NewOperation,
    Operation,
    OperationFile,
    OperationLease,
    OperationPart,
    OperationResult,
    OperationState,
)

#: Acts on requests that the store does itself: dead ones wait again, open ones are cancelled,
#: dead ones are cancelled, ended ones of ended runs are deleted.
RequestAct = Literal["retry", "cancel", "give_up", "forget"]


class Operations(Protocol):
    """Methods that take a lease raise LostLease when another center has taken the operation since,
    or when it has ended; then they change nothing."""

    async def add(self, new: NewOperation, limit: int, now: float) -> Operation:
        """Store an operation, once per `once`; returns the stored one. Raises Conflict when `limit`
        operations are open already."""

    async def get(self, number: int) -> Operation:
        """Raises NotFound."""

    async def recent(
        self, limit: int, before: int | None = None, *, only_open: bool = False
    ) -> list[Operation]:
        """Newest first; with `before`, those with lower numbers."""

    async def cancel(self, number: int, now: float) -> Operation:
        """End an open operation; what is done stays done. An ended one is left as it is. The center
        that works on it is fenced out. Raises NotFound."""

    async def claim(self, holder: str, now: float, until: float, limit: int) -> list[Operation]:
        """Renew the operations of this center, and take open ones that are not held, oldest first,
        up to `limit` in all; returns all that it holds now. Taking one raises its lease."""

    async def release(self, holder: str) -> None:
        """Release all operations of a center: another one can take them at once."""

    async def forget(self, before: float, limit: int) -> int:
        """Delete operations that ended before a time; returns how many."""

    async def collect(
        self,
        lease: OperationLease,
        parts: Sequence[Sequence[Key]],
        position: str,
        now: float,
        *,
        last: bool,
    ) -> Operation:
        """Add parts to the set, together with the position up to which it is complete."""

    async def part(self, lease: OperationLease) -> OperationPart | None:
        """The first part that is not processed; None when all are."""

    async def settle(
        self,
        lease: OperationLease,
        part: int,
        results: Sequence[OperationResult],
        left: Sequence[Key] = (),
    ) -> Operation:
        """A part is processed except for the keys that are `left`."""

    async def act(
        self,
        lease: OperationLease,
        part: OperationPart,
        act: RequestAct,
        wanted: CheckedFilter,
        now: float,
        notes: Sequence[str] = (),
    ) -> ActedPart:
        """Change the requests of a part that still match, and settle the part, in one transaction.
        `notes` are kept with the operation, each once, up to a limit."""

    async def export(
        self,
        lease: OperationLease,
        part: int,
        results: Sequence[OperationResult],
        piece: FilePiece | None,
    ) -> Operation:
        """Settle a part and add its lines to the file of the operation, in one transaction."""

    async def file(self, number: int) -> OperationFile:
        """How large the file of an operation is; without pieces there is none."""

    async def file_piece(self, number: int, after: int) -> tuple[int, bytes] | None:
        """(number, zstd frame) of the next piece; None = that was all."""

    async def forget_files(self, before: float, limit: int) -> int:
        """Delete the files of operations that ended before a time; returns how many."""

    async def end(
        self, lease: OperationLease, state: OperationState, error: str, now: float
    ) -> Operation:
        """Close it. The file of one that is not done is deleted."""


class ActedPart(msgspec.Struct, frozen=True):
    """What the store did with a part."""

    operation: Operation
    #: Number of requests that changed.
    changed: int
    #: Blocks that had cancelled requests.
    blocks: list[int]


class Targets(Protocol):
    """Objects that a filter finds. Searching reads a bounded number of rows per call. Raises
    InvalidInput for a filter that the store cannot evaluate."""

    async def count(self, wanted: CheckedFilter, alive_after: float) -> TargetCount:
        """Counted up to 10,000."""

    async def examples(
        self, wanted: CheckedFilter, alive_after: float, limit: int
    ) -> list[TargetExample]:
        """The first ones, with a description."""

    async def page(
        self, wanted: CheckedFilter, alive_after: float, after: str, bound: str, limit: int
    ) -> TargetPage:
        """The next keys after a position, in the order of keys. Only objects that were made before
        `wanted.now`, and of requests and runs only those that have not ended since."""

    async def matching(
        self, wanted: CheckedFilter, alive_after: float, keys: Sequence[Key]
    ) -> set[Key]:
        """Those of the keys that match now."""

    async def objects(
        self, wanted: CheckedFilter, alive_after: float, keys: Sequence[Key]
    ) -> list[tuple[Key, Any]]:
        """Those of the keys that match now, with what the list of the resource gives, in the order
        of keys. Not for agents."""

    async def runs_of(self, requests: Sequence[Key]) -> list[str]:
        """The runs of these requests."""


class TargetCount(msgspec.Struct, frozen=True):
    """How many match; without `exact` that many or more."""

    n: int
    exact: bool


class TargetExample(msgspec.Struct, frozen=True):
    """An object that matches."""

    key: Key
    text: str


class TargetPage(msgspec.Struct, frozen=True):
    """Keys, and the position from which to continue; None = that was all."""

    keys: list[Key]
    next: str | None
