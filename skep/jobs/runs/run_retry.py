"""Retries the dead requests of a run when all others have ended, in rounds.

A host that is down for an hour outlasts the retries of a request; a later round may find it up.
Run by the center that leases the run; rounds are counted in the row of the job run.
"""

from __future__ import annotations

from random import Random

from skep.model.jobs.job import Job, JobRun
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.store.ports import Store


class RunRetries:
    """Retries dead requests of runs, as often as the job allows."""

    def __init__(self, store: Store, backoff: Backoff, clock: Clock, rng: Random) -> None:
        self._store = store
        self._backoff = backoff
        self._clock = clock
        self._rng = rng

    async def another_round(self, held: JobRun, job: Job, dead: int) -> bool:
        """Whether dead requests of the run wait again; False = no more rounds."""
        row = await self._store.job_runs.get(held.run)
        rounds = row.starts if row else 0
        if not dead or rounds >= job.chosen.run_retries:
            return False
        await self._clock.sleep(self._backoff.delay(rounds + 1, self._rng))
        # Counted first: a center that dies in between loses a round and cannot loop.
        told = f"round {rounds + 2}: retrying {dead} dead requests"
        if not await self._store.job_runs.note(held.proof, starts=rounds + 1, outcome=told):
            return False
        return bool(await self._store.requests.revive(held.run))
