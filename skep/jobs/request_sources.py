"""Where requests come from, and the transaction in which each source stores them. Centers only.

A source never checks, counts or announces anything: `Intake.accept_from` does that for all of
them and is the only caller of `store`. Requests of a checkpoint are stored together with what
the driver read, those of a generator together with its counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from skep.errors import SkepError
from skep.model.hosts.named_places import is_place, places_in
from skep.model.jobs.generator_progress import Counts, Generation, Taken, Window
from skep.model.people.audit import AuditRow
from skep.model.request import Accepted
from skep.store.ports import Store
from skep.store.ports.checkpoints import CheckpointResult, ItemRow
from skep.store.ports.requests import RequestRow

T_co = TypeVar("T_co", covariant=True)


class Refused(NamedTuple):
    """A request that is not valid: its position in the batch, and why."""

    position: int
    error: SkepError


class Checked(NamedTuple):
    """A batch after validation."""

    rows: list[RequestRow]
    #: Requests that were left out; always empty for a source that does not allow it.
    refused: Sequence[Refused] = ()


class RequestSource(Protocol[T_co]):
    """What differs between the sources of requests."""

    @property
    def leaves_out_invalid(self) -> bool:
        """Whether valid requests are stored without the others; if not, the first invalid
        request refuses the whole batch."""

    def named(self, rows: Sequence[RequestRow]) -> Collection[str]:
        """Loopback and private places that a user named with these requests."""

    async def store(self, run: str, checked: Checked, now: float) -> tuple[T_co, int]:
        """Store the requests in one transaction: (its result, number of new requests).

        Raises Conflict when the run has ended.
        """


@dataclass(frozen=True, slots=True)
class Submission:
    """Sent by a user or a program; stored in a separate transaction, with its audit row."""

    leaves_out_invalid: ClassVar[bool] = False
    stores: Store
    audit: AuditRow | None = None

    def named(self, rows: Sequence[RequestRow]) -> Collection[str]:
        return places_in(row.uri for row in rows)

    async def store(self, run: str, checked: Checked, now: float) -> tuple[Accepted, int]:
        accepted = await self.stores.requests.accept(run, checked.rows, now, self.audit)
        return accepted, accepted.new


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Follow-ups of a driver, with the blocks that it read and the items that it found."""

    leaves_out_invalid: ClassVar[bool] = False
    stores: Store
    driver: int
    blocks: Sequence[int]
    items: Sequence[ItemRow] = ()
    #: Places of start URLs. Links add none.
    places: Collection[str] = ()

    def named(self, rows: Sequence[RequestRow]) -> Collection[str]:  # noqa: ARG002 - links
        return {place for place in self.places if is_place(place)}

    async def store(self, run: str, checked: Checked, now: float) -> tuple[CheckpointResult, int]:
        result = await self.stores.checkpoints.checkpoint(
            run, self.driver, self.blocks, self.items, checked.rows, now
        )
        return result, result.requests.new


class Generated(NamedTuple):
    """The result of a batch of a generator."""

    taken: Taken
    refused: Sequence[Refused]


@dataclass(frozen=True, slots=True)
class GeneratorBatch:
    """A batch of a generator, with the counts of the generator after it."""

    leaves_out_invalid: ClassVar[bool] = True
    stores: Store
    begun: Generation
    counts: Callable[[Sequence[Refused]], Counts]
    #: Whether a user wrote the URIs. Code, queries and sitemaps may pass on those of others.
    written: bool
    #: The job, and the seconds for which its later runs leave these URIs out; 0 = never.
    job: str = ""
    seconds: float = 0.0

    def named(self, rows: Sequence[RequestRow]) -> Collection[str]:
        return places_in(row.uri for row in rows) if self.written else ()

    async def store(self, run: str, checked: Checked, now: float) -> tuple[Generated, int]:  # noqa: ARG002 - begun
        window = Window(self.job, now + self.seconds) if self.seconds else None
        counts = self.counts(checked.refused)
        taken = await self.stores.generations.take(self.begun, checked.rows, counts, window, now)
        return Generated(taken, checked.refused), taken.new
