"""What centers ask of a store about the driver of a run; the rules of `store/ports` hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from skep.model.block import EndedRequest
from skep.model.request import Accepted
from skep.model.states import RunState
from skep.store.ports.requests import RequestRow


class CheckpointStore(Protocol):
    """Asked for the drivers of runs (spiders). One driver at a time: the token fences."""

    async def take_over(self, run_id: str, patience: float = 0.0, now: float = 0.0) -> int:
        """A new driver's token; every older one is stale from now on. Raises UnknownRun.

        `patience`: seconds that it may be silent before its run is given up; 0 = for ever.
        """

    async def orders(self, run_id: str) -> DriverRequests:
        """The run's state and what is asked of its driver. Raises UnknownRun."""

    async def ask(self, run_id: str, what: str) -> None:
        """Leave a word for the driver; whoever takes over next does not hear it. Raises
        Conflict when the run has no driver."""

    async def end(self, run_id: str, driver: int, to: RunState, reason: str, now: float) -> None:
        """The driver's last word: paused, failed or finished, and why. A finished run's open
        requests are CANCELLED by the same transaction, except those in agents' hands.

        Raises StaleToken when another driver took over, Conflict when `to` is not legal.
        """

    async def give_up_silent(self, now: float) -> list[str]:
        """Running runs whose driver was silent for too long become FAILED; their names."""

    async def unread(self, run_id: str, limit: int, taken: Sequence[int]) -> list[UnreadBlock]:
        """Finished blocks that no turn has taken, except `taken`, oldest first."""

    async def checkpoint(
        self,
        run_id: str,
        driver: int,
        blocks: Sequence[int],
        items: Sequence[ItemRow],
        rows: Sequence[RequestRow],
        now: float,
    ) -> CheckpointResult:
        """Blocks read, items found, requests wanted: all or nothing, and once.

        Raises StaleToken when another driver took over, Conflict when the run has ended.
        """

    async def items(self, run_id: str, after: int, limit: int) -> list[KeptItem]:
        """Items in the order of their ids."""

    async def items_of(self, run_id: str, request_ids: Sequence[int]) -> list[KeptItem]:
        """The items of these requests' pages, in the order of their ids."""

    async def count(self, run_id: str) -> int:
        """How many items the run has."""

    async def ended(
        self, run_id: str, after: int, limit: int, *, collected: bool
    ) -> list[UnreadBlock]:
        """Blocks that ended, with ids over `after`, in the order of their ids; with
        `collected` only those that a turn has taken. Reading them changes nothing."""


class UnreadPage(EndedRequest, frozen=True):
    """One ended request of a run that its driver has not read, and where its bytes are."""

    final_uri: str
    elapsed_us: int
    segment: str
    offset: int
    length: int


class UnreadBlock(msgspec.Struct, frozen=True):
    """A finished block that no turn has taken yet."""

    id: int
    pages: list[UnreadPage]


class ItemRow(msgspec.Struct, frozen=True):
    """The `n`th item of a request's page, as msgpack."""

    request: int
    n: int
    data: bytes


class KeptItem(msgspec.Struct, frozen=True):
    """An item as it is read back; ids grow in the order of the run's turns."""

    id: int
    request: int
    data: bytes


class DriverRequests(msgspec.Struct, frozen=True):
    """What the driver of a run should know at once."""

    state: RunState
    #: Why the run is in that state.
    reason: str = ""
    #: What somebody asks of the driver's process; "" = nothing.
    asked: str = ""


class CheckpointResult(msgspec.Struct, frozen=True):
    """What a turn added."""

    requests: Accepted
    items: int
