"""Two kinds of acts: in one transaction of the store, or object by object.

Run by centers. The store does its acts together with the position, in one transaction. Other acts
are idempotent, and the position is stored after them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from skep.errors import NotFound, SkepError, Unavailable
from skep.model.operations import Key, Operation, OperationResult, added, result_of
from skep.operations.acts import ActTraits, Batch
from skep.runtime.clock import Clock
from skep.store.ports import Store
from skep.store.ports.operations import ActedPart, RequestAct

log = logging.getLogger(__name__)

NO_MATCH = "no longer matches the filter"
GONE = "does not exist any more"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Returned by the function of an act: the object was left as it is, and why."""

    reason: str


async def _no_notes(_: Batch) -> list[str]:
    return []


async def _nothing(_: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class StoreAct:
    """An act on requests in the transaction that stores the position."""

    traits: ActTraits
    store: Store
    clock: Clock
    act: RequestAct
    #: Called first; returns notes for the operation.
    before: Callable[[Batch], Awaitable[list[str]]] = _no_notes
    after: Callable[[ActedPart], Awaitable[None]] = _nothing

    async def apply(self, batch: Batch) -> Operation:
        notes = await self.before(batch)
        lease, part = batch.operation.proof, batch.part
        acted = await self.store.operations.act(
            lease, part, self.act, batch.wanted, self.clock.now(), notes
        )
        await self.after(acted)
        return acted.operation


@dataclass(frozen=True, slots=True)
class EachAct:
    """An act that is done for one object after the other."""

    traits: ActTraits
    store: Store
    clock: Clock
    alive_after: float
    do: Callable[[str, Batch], Awaitable[object]]

    async def apply(self, batch: Batch) -> Operation:
        keys = batch.part.keys
        fit = await self.store.targets.matching(batch.wanted, self.alive_after, keys)
        results: list[OperationResult] = []
        left = list(keys)
        while left and self.clock.monotonic() < batch.deadline:
            key = left.pop(0)
            one = await self._one(key, batch) if key in fit else _result("skipped", NO_MATCH, key)
            results = added(results, one)
        lease = batch.operation.proof
        return await self.store.operations.settle(lease, batch.part.no, results, left)

    async def _one(self, key: Key, batch: Batch) -> list[OperationResult]:
        try:
            answer = await self.do(str(key), batch)
        except Unavailable:
            raise
        except NotFound:
            return _result("skipped", GONE, key)
        except SkepError as error:
            return _result("failed", error.title, f"{key}: {error.detail}")
        except Exception as error:
            log.exception("unexpected error: %s of %s", self.traits.name, key)
            return _result("failed", "unexpected error", f"{key}: {type(error).__name__}")
        if isinstance(answer, Skipped):
            return _result("skipped", answer.reason, key)
        return _result("done", "", key)


def _result(outcome: str, reason: str, name: object) -> list[OperationResult]:
    return result_of(outcome, reason, [name])  # type: ignore[arg-type] # one of three words
