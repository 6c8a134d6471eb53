"""Takes results: bytes to the archive, then facts to the store, then the answer. For centers.

Bytes are stored only for blocks that the agent holds at that time; a report of any other block
changes nothing, so its bytes would stay in the archive unused.

This order is the only safe one: committed rows refer to bytes that are synced. A crash after the
first step leaves bytes that no row refers to, and the agent sends the report again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from random import Random

from skep.archive.ports import Archive, RecordLocation
from skep.errors import InvalidInput, Unavailable
from skep.model.block import BlockReport, Held
from skep.model.failures.failure_class import FailureClass
from skep.model.hosts.politeness import Politeness
from skep.model.request import URI_LIMIT, Outcome
from skep.results.host_notes import check_notes
from skep.results.recycle import again_at, backoff_of
from skep.runtime.backoff import Backoff
from skep.runtime.batcher import Batcher
from skep.runtime.clock import Clock
from skep.settings import LaneSettings
from skep.store.ports import Store
from skep.store.ports.blocks import Placed, RetryFacts, RetryRule, Settlement, SettleResult

#: Maximum reports that are written together.
SETTLED_AT_ONCE = 50
DETAIL_LIMIT = 1000
ADDRESS_LIMIT = 64
STATUS_LIMIT = 65_535
COUNT_LIMIT = 2**63 - 1
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FAILURES = frozenset({"", *FailureClass})


class Ingest:
    """Takes block reports from agents."""

    def __init__(
        self,
        settings: LaneSettings,
        store: Store,
        archive: Archive,
        clock: Clock,
        rng: Random,
        politeness: Politeness,
        *,
        together: bool = False,
    ) -> None:
        """`together`: reports that arrive while others are written share the next write; else each
        is written separately."""
        self._politeness = politeness
        self._backoff = Backoff(settings.retry_first, settings.retry_cap)
        self._store = store
        self._archive = archive
        self._clock = clock
        self._rng = rng
        self._settling: Batcher[list[Settlement], list[SettleResult] | Exception] | None = None
        if together:
            self._settling = Batcher(self._settle, limit=SETTLED_AT_ONCE)

    async def take(self, agent: str, reports: Sequence[BlockReport]) -> list[SettleResult]:
        """Durable when it returns; raises InvalidInput before anything is written."""
        for report in reports:
            check_report(report)
            check_notes(report)
        rules = await self._rules(reports)
        places = await self._keep(agent, reports)
        settlements = [
            Settlement(report, agent, rule, place)
            for report, rule, place in zip(reports, rules, places, strict=True)
        ]
        if self._settling is None:
            return await self._written(settlements)
        found = await self._settling.ask(object(), settlements)
        if isinstance(found, Exception):
            raise found
        return found

    async def _settle(
        self, asks: list[list[Settlement]]
    ) -> Sequence[list[SettleResult] | Exception]:
        """Write all reports that arrived meanwhile together: it costs little more than one."""
        everything = [one for ask in asks for one in ask]
        try:
            verdicts = iter(await self._written(everything))
        except Unavailable:
            raise
        except Exception:
            if len(asks) == 1:
                raise
            # One of them cannot be written, which must not affect the others.
            return [await self._alone(ask) for ask in asks]
        return [list(islice(verdicts, len(ask))) for ask in asks]

    async def _alone(self, ask: list[Settlement]) -> list[SettleResult] | Exception:
        try:
            return await self._written(ask)
        except Exception as error:  # noqa: BLE001 - raised by its caller
            return error

    async def _written(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        return await self._store.blocks.settle(settlements, self._clock.now(), self._politeness)

    async def _keep(self, agent: str, reports: Sequence[BlockReport]) -> list[Placed]:
        with_bytes = [report for report in reports if report.frames]
        if not with_bytes:
            return [Placed()] * len(reports)
        mine = await self._store.blocks.owned([_held(report) for report in with_bytes], agent)
        blobs = [report.frames for report in with_bytes if _held(report) in mine]
        places = iter(await self._archive.append(blobs) if blobs else [])
        return [
            _placed(next(places)) if report.frames and _held(report) in mine else Placed()
            for report in reports
        ]

    async def _rules(self, reports: Sequence[BlockReport]) -> list[RetryRule]:
        failed = [o.id for report in reports for o in report.outcomes if o.failure]
        if not failed:
            return [RetryRule({})] * len(reports)
        histories = await self._store.requests.retry_facts(failed)
        now = self._clock.now()
        return [RetryRule(self._again(report, histories, now)) for report in reports]

    def _again(
        self, report: BlockReport, histories: dict[int, RetryFacts], now: float
    ) -> dict[int, float]:
        again: dict[int, float] = {}
        for outcome in report.outcomes:
            if not outcome.failure or outcome.id not in histories:
                continue
            facts = histories[outcome.id]
            backoff = backoff_of(facts, self._backoff)
            when = again_at(outcome, facts.failures, facts.retries, now, backoff, self._rng)
            if when is not None:
                again[outcome.id] = when
        return again


def _held(report: BlockReport) -> Held:
    return Held(report.block, report.token)


def _placed(place: RecordLocation) -> Placed:
    return Placed(place.segment, place.offset)


def check_report(report: BlockReport) -> None:
    """Refuse values that no correct agent sends; cut texts that are too long."""
    size = len(report.frames)
    for outcome in report.outcomes:
        if outcome.failure not in _FAILURES:
            raise InvalidInput(f"block {report.block}: failure {outcome.failure!r} is not known")
        if outcome.offset < 0 or outcome.length < 0 or outcome.offset + outcome.length > size:
            raise InvalidInput(
                f"block {report.block}: request {outcome.id} refers to bytes outside its frames"
            )
        if not _countable(outcome):
            raise InvalidInput(f"block {report.block}: request {outcome.id}: value out of range")
        # Nearly every outcome has only an address to check: no function call for it.
        address = outcome.address
        long = len(address) > ADDRESS_LIMIT
        if outcome.detail or outcome.final_uri or long or not address.isprintable():
            _shorten(outcome)


def _countable(outcome: Outcome) -> bool:
    """Whether the numbers fit the store's columns; microseconds and bytes are never negative."""
    return (
        0 <= outcome.status <= STATUS_LIMIT
        and 0 <= outcome.elapsed_us <= COUNT_LIMIT
        and 0 <= outcome.sent <= COUNT_LIMIT
        and 0 <= outcome.received <= COUNT_LIMIT
    )


def _shorten(outcome: Outcome) -> None:
    outcome.detail = plain(outcome.detail)[:DETAIL_LIMIT]
    outcome.final_uri = plain(outcome.final_uri)[:URI_LIMIT]
    outcome.address = plain(outcome.address)[:ADDRESS_LIMIT]


def plain(text: str) -> str:
    """Without control characters: texts from servers end up in logs and terminals, and not every
    store accepts a NUL."""
    return text if text.isprintable() else _CONTROL.sub(" ", text)
