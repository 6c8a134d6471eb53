"""Writes the audit log: changes at once, refused calls summed. Run by centers only.

The row of a change is on disk before the change is answered. Calls that changed nothing are
written at once for the first of a kind, and as one sum per minute for the rest, so that a flood
of refused calls costs a few rows and a bounded amount of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Hashable, Sequence
from typing import Any

import msgspec

from skep.access.login_attempts import network_of
from skep.errors import SkepError
from skep.model.people.audit import AuditRow
from skep.runtime.batcher import Batcher
from skep.runtime.clock import Clock
from skep.settings import AccessSettings
from skep.store.ports import Store
from skep.wire.api.people.login import LOG_IN

log = logging.getLogger(__name__)

#: Seconds over which calls of one kind are summed.
SUM_SECONDS = 60.0
#: Kinds that are summed separately; all others share one row per caller.
KINDS = 1000
#: Seconds that a center which stops waits for the store.
CLOSE_SECONDS = 5.0
_DELETED_AT_ONCE = 5000


class AuditTrail:
    """The audit log, as one center writes it."""

    def __init__(self, store: Store, clock: Clock, center: str, settings: AccessSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self.center = center
        self._writing: Batcher[AuditRow, None] = Batcher(self._write)
        #: What came after the first call of a kind, since `_since`; None = nothing yet.
        self._sums: dict[Hashable, AuditRow | None] = {}
        self._since = clock.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()

    async def record(self, row: AuditRow) -> None:
        """On disk when it returns. Raises StoreDown and DiskFull."""
        await self._writing.ask(object(), row)

    def record_soon(self, row: AuditRow) -> None:
        """Sum a call that changed nothing; the first of its kind is written now, in the
        background: a refusal does not wait for the store."""
        if not row.who:  # an anonymous caller chooses paths as it likes, but not who is a user
            user = row.object if row.action == LOG_IN.id else ""
            kind: tuple[str, ...] = ("", network_of(row.address), user)
        else:
            kind = (row.who, row.address, row.action, row.object, row.detail[:40])
        if kind not in self._sums and len(self._sums) < KINDS:
            self._sums[kind] = None
            self._start(self._try([row]))
            return
        if kind not in self._sums:  # too many kinds: one for each caller
            kind, row = (row.who,), msgspec.structs.replace(row, address="", object="")
        before = self._sums.get(kind)
        times = row.times + (0 if before is None else before.times)
        self._sums[kind] = msgspec.structs.replace(before or row, times=times)

    async def flush(self, *, over: bool = False) -> None:
        """Write the sums of a minute that is over; `over`: write them now."""
        now = self._clock.monotonic()
        if not over and now - self._since < SUM_SECONDS:
            return
        self._since = now
        rows = [row for row in self._sums.values() if row is not None]
        self._sums = {}
        await self._try(rows)

    async def close(self) -> None:
        """Write what is left. If the store does not answer, the sums of the last minute are
        lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self.flush(over=True)

    async def delete_old(self) -> int:
        """Delete rows beyond the limits of the settings; returns how many."""
        age, most = self._settings.audit_age, self._settings.audit_bytes
        before = self._clock.now() - age if age else 0.0
        total = 0
        while deleted := await self._store.audit.forget(before, most, _DELETED_AT_ONCE):
            total += deleted
        return total

    async def _try(self, rows: Sequence[AuditRow]) -> None:
        try:
            await self._store.audit.add(rows)
        except SkepError as error:
            calls = sum(row.times for row in rows)
            log.warning("cannot write audit rows of %d refused calls: %s", calls, error.detail)

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, rows: list[AuditRow]) -> list[None]:
        await self._store.audit.add(rows)
        return [None] * len(rows)
