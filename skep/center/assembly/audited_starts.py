"""Run starts by schedule, with a row of the audit log for each. Run by centers only.

The id of a run follows from its due time, so a start whose row could not be written is repeated
as the same run.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.access.audit import AuditTrail
from skep.jobs.schedule.firing import JobRuns
from skep.model.people.audit import AuditRow
from skep.runtime.clock import Clock

WHO = "center:schedule"


class AuditedStarts:
    """Implements `JobRuns` around another one."""

    def __init__(self, inner: JobRuns, audit: AuditTrail, clock: Clock) -> None:
        self._inner = inner
        self._audit = audit
        self._clock = clock

    async def start_run(self, job: str, fire_key: str) -> str:
        run = await self._inner.start_run(job, fire_key)
        await self._record("run_job", f"job:{job}", {"run": run, "fire": fire_key})
        return run

    async def going(self, jobs: Sequence[str]) -> dict[str, list[str]]:
        return await self._inner.going(jobs)

    async def stop_run(self, run: str, reason: str) -> None:
        await self._inner.stop_run(run, reason)
        await self._record("change_run", f"run:{run}", {"reason": reason})

    async def _record(self, action: str, what: str, after: dict[str, str]) -> None:
        text = msgspec.json.encode(after).decode()
        row = AuditRow(
            self._clock.now(),
            WHO,
            action,
            what,
            client="center",
            after=text,
            center=self._audit.center,
        )
        await self._audit.record(row)
