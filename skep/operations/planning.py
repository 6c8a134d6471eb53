"""Accepts bulk operations: the dry run, which shows what matches, and the start.

Run by centers. It changes nothing but the table of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skep.errors import Conflict, InvalidInput
from skep.model.filter.checked import CheckedFilter
from skep.model.operations import NewOperation, Operation
from skep.operations.acts import Act, Registry, read_arguments
from skep.operations.confirmation import DryRunResult, confirmation, read_confirmation
from skep.runtime.clock import Clock
from skep.store.ports import Store
from skep.wire.api.operations import OperationPlan, StartOperation, TargetLine

#: Objects that a dry run shows.
EXAMPLES = 5
#: Maximum number of open operations in a cluster.
OPEN_LIMIT = 100


class OperationPlanner:
    """Dry runs and starts. `wake` tells the worker that there is something to do."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        alive_after: float,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._alive_after = alive_after
        self._wake = wake

    async def plan(self, asked: StartOperation) -> OperationPlan:
        """What the operation would change."""
        act, wanted = self._read(asked, moment := round(self._clock.now(), 3))
        targets = self._store.targets
        count = await targets.count(wanted, self._alive_after)
        found = await targets.examples(wanted, self._alive_after, EXAMPLES)
        shown = DryRunResult(count.n, count.exact, moment)
        return OperationPlan(
            count.n,
            count.exact,
            [TargetLine(str(one.key), one.text) for one in found],
            act.traits.destroys,
            confirmation(_what(asked), shown),
        )

    async def start(self, asked: StartOperation, creator: str) -> Operation:
        """Store the operation; centers process it."""
        now = self._clock.now()
        act, _ = self._read(asked, now)
        shown = read_confirmation(asked.confirm, _what(asked), now) if asked.confirm else None
        if act.traits.destroys and shown is None:
            raise InvalidInput(
                f"{asked.act} of {asked.resource} cannot be undone: make a dry run, and send the"
                " `confirm` of its answer"
            )
        moment = now if shown is None else shown.moment
        limit = shown.matched if shown is not None and shown.exact else None
        if limit is not None:
            await self._compare(asked, moment, limit)
        new = _new(asked, creator, moment, limit)
        operation = await self._store.operations.add(new, OPEN_LIMIT, now)
        self._wake()
        return operation

    def _read(self, asked: StartOperation, now: float) -> tuple[Act, CheckedFilter]:
        act = self._registry.act(asked.resource, asked.act)
        read_arguments(act.traits, asked.arguments)
        if not asked.filter.strip() and not asked.all:
            raise InvalidInput(
                f'an empty filter matches all {asked.resource}; for that, send "all": true'
            )
        return act, self._registry.resource(asked.resource).read(asked.filter, now)

    async def _compare(self, asked: StartOperation, moment: float, limit: int) -> None:
        """Raises Conflict when more objects match than the caller has confirmed."""
        _, wanted = self._read(asked, moment)
        count = await self._store.targets.count(wanted, self._alive_after)
        if count.n > limit:
            raise Conflict(
                f"the filter matches {count.n} {asked.resource} now, {limit} were confirmed; make"
                " another dry run"
            )


def _what(asked: StartOperation) -> tuple[Any, ...]:
    return (asked.resource, asked.act, asked.filter, asked.arguments)


def _new(asked: StartOperation, creator: str, moment: float, confirmed: int | None) -> NewOperation:
    return NewOperation(
        asked.resource,
        asked.act,
        asked.filter,
        creator,
        moment,
        asked.rate,
        asked.arguments,
        confirmed,
        asked.key,
    )
