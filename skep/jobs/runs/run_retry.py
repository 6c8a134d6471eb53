"""Job-level retry: what died in a run gets another round when all the rest has ended.

A site that was down for an hour outlasts the retries of a request; a round later it may be
back. Run by the center that holds the run; rounds are counted in the row of the job's run.
"""

from __future__ import annotations

from random import Random

from skep.model.jobs.job import Job, JobRun
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.store.ports import Store


class RunRetries:
    """Sends dead requests of runs again, as often as their jobs say."""

    def __init__(self, store: Store, backoff: Backoff, clock: Clock, rng: Random) -> None:
        self._store = store
        self._backoff = backoff
        self._clock = clock
        self._rng = rng

    async def another_round(self, held: JobRun, job: Job, dead: int) -> bool:
        """Whether dead requests of the run wait again; False = it is over."""
        row = await self._store.job_runs.get(held.run)
        rounds = row.starts if row else 0
        if not dead or rounds >= job.chosen.run_retries:
            return False
        await self._clock.sleep(self._backoff.delay(rounds + 1, self._rng))
        # Counted first: a center that dies in between costs a round, not an endless loop.
        told = f"round {rounds + 2}: {dead} dead requests again"
        if not await self._store.job_runs.note(held.proof, starts=rounds + 1, outcome=told):
            return False
        return bool(await self._store.requests.revive(held.run))
