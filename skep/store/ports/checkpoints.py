"""The store's contract for the driver of a run. The rules of `store/ports` apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from skep.model.block import EndedRequest
from skep.model.request import Accepted
from skep.model.states import RunState
from skep.store.ports.requests import RequestRow


class CheckpointStore(Protocol):
    """Used for the drivers of runs (spiders). One driver at a time: the token fences."""

    async def take_over(self, run_id: str, patience: float = 0.0, now: float = 0.0) -> int:
        """A new driver's token; every older one is stale from now on. Raises UnknownRun.

        `patience`: seconds without a call after which the driver times out; 0 = never.
        """

    async def orders(self, run_id: str) -> DriverRequests:
        """The run's state and the command for its driver. Raises UnknownRun."""

    async def ask(self, run_id: str, what: str) -> None:
        """Store a command for the driver; a driver that takes over later does not get it. Raises
        Conflict when the run has no driver."""

    async def end(self, run_id: str, driver: int, to: RunState, reason: str, now: float) -> None:
        """The driver ends its run: paused, failed or finished, and why. A finished run's open
        requests are CANCELLED by the same transaction, except leased ones.

        Raises StaleToken when another driver took over, Conflict when `to` is not legal.
        """

    async def give_up_silent(self, now: float) -> list[str]:
        """Running runs whose driver timed out become FAILED; returns their names."""

    async def unread(self, run_id: str, limit: int, taken: Sequence[int]) -> list[UnreadBlock]:
        """Finished blocks that no checkpoint has taken, except `taken`, oldest first."""

    async def checkpoint(
        self,
        run_id: str,
        driver: int,
        blocks: Sequence[int],
        items: Sequence[ItemRow],
        rows: Sequence[RequestRow],
        now: float,
    ) -> CheckpointResult:
        """Store blocks read, items found and requests added: all or nothing, and once.

        Raises StaleToken when another driver took over, Conflict when the run has ended.
        """

    async def items(self, run_id: str, after: int, limit: int) -> list[KeptItem]:
        """Items in the order of their ids."""

    async def items_of(self, run_id: str, request_ids: Sequence[int]) -> list[KeptItem]:
        """The items of these requests' pages, in the order of their ids."""

    async def count(self, run_id: str) -> int:
        """Number of items of the run."""

    async def ended(
        self, run_id: str, after: int, limit: int, *, collected: bool
    ) -> list[UnreadBlock]:
        """Blocks that ended, with ids over `after`, in the order of their ids; with
        `collected` only those that a checkpoint has taken. Reading them changes nothing."""


class UnreadPage(EndedRequest, frozen=True):
    """One ended request of a run that its driver has not read, with the location of its bytes."""

    final_uri: str
    elapsed_us: int
    segment: str
    offset: int
    length: int


class UnreadBlock(msgspec.Struct, frozen=True):
    """A finished block that no checkpoint has taken yet."""

    id: int
    pages: list[UnreadPage]


class ItemRow(msgspec.Struct, frozen=True):
    """The `n`th item of a request's page, as msgpack."""

    request: int
    n: int
    data: bytes


class KeptItem(msgspec.Struct, frozen=True):
    """A stored item; ids grow in the order of the run's checkpoints."""

    id: int
    request: int
    data: bytes


class DriverRequests(msgspec.Struct, frozen=True):
    """The state of a run and the command for its driver."""

    state: RunState
    #: Why the run is in that state.
    reason: str = ""
    #: A command for the driver's process; "" = none.
    asked: str = ""


class CheckpointResult(msgspec.Struct, frozen=True):
    """What a checkpoint added."""

    requests: Accepted
    items: int
