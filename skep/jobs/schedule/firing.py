"""Fires due schedules: every center runs this step about once a second, without a leader.

A due time is claimed by a row in the ledger of fires, then its run is opened, then the outcome is
stored. The id of the run follows from job and due time, so another center can take over a fire
whose center died: opening it again gives the same run. Nothing here may depend on the other
centers being alive, or on their clocks being right.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from skep.errors import NotEnoughAgents, SkepError, Unavailable
from skep.jobs.schedule.clock_steps import ClockSteps
from skep.jobs.schedule.fire_policy import Busy, Due, FireDecision, decide, overlapped
from skep.jobs.schedule.timetable import Timetable
from skep.model.jobs.fire import Fire, FireState, Planned, Step, key_of_due
from skep.model.jobs.schedule import Overlap, Schedule
from skep.runtime.clock import Clock
from skep.store.ports.schedules import Fires

log = logging.getLogger(__name__)

#: Schedules read in one batch, and due times of one schedule decided in one batch.
BATCH = 500
DUE_AT_ONCE = 1000
#: Rounds of one step; the rest follows in the next step.
ROUNDS = 100
#: Fires without an outcome that are read in one step.
LOOK = 10_000
#: Seconds after which any center may take over a claim without an outcome.
PATIENCE = 15.0
#: Seconds until an unreadable schedule (a time zone that was removed) is read again.
UNREADABLE_AGAIN = 300.0
#: A plan that is this many seconds ahead was made by a wrong clock: that of this center, which was
#: corrected just now; or that of another center, which is checked at intervals.
AHEAD, FAR_AHEAD = 60.0, 3600.0
LOOK_AHEAD_EVERY = 60.0

_NO_SCHEDULE = Schedule()


class JobRuns(Protocol):
    """Opens and stops runs for fires."""

    async def start_run(self, job: str, fire_key: str) -> str:
        """Open the run of a fire; return the existing run if it was opened before."""

    async def going(self, jobs: Sequence[str]) -> dict[str, list[str]]:
        """Runs that have neither ended nor failed, of those jobs that have any."""

    async def stop_run(self, run: str, reason: str) -> None:
        """Cancel it; no effect when it has ended."""


InParallel = Callable[[Iterable[Coroutine[Any, Any, Any]]], Awaitable[Sequence[Any]]]


Warn = Callable[[str], Awaitable[None]]


async def _silently(_detail: str) -> None:
    """The default of `warn`: no alert."""


async def at_once(calls: Iterable[Coroutine[Any, Any, Any]]) -> Sequence[Any]:
    """Run all concurrently, so that they share commits."""
    return await asyncio.gather(*calls)


class Claimed(NamedTuple):
    fire: Fire
    schedule: Schedule


class Rivals(NamedTuple):
    """The runs and due times that compete with a fire that replaces others."""

    runs: list[str]
    #: Due times up to this one may have been claimed after it.
    decided: int


class Firing:
    """One center's part in the scheduler."""

    def __init__(
        self,
        fires: Fires,
        runs: JobRuns,
        clock: Clock,
        center: str,
        together: InParallel = at_once,
        agents_wait: Callable[[], float] = float,
        warn: Warn = _silently,
    ) -> None:
        """`agents_wait`: seconds that a fire waits for the agents of its job; `warn` raises an
        alert."""
        self._warn = warn
        self._looked_ahead = -math.inf
        self._agents_wait = agents_wait
        #: Fires that wait for agents, and until when.
        self._waiting: dict[tuple[str, str], tuple[Claimed, float]] = {}
        self._fires = fires
        self._runs = runs
        self._clock = clock
        self._center = center
        self._together = together
        self._steady = ClockSteps(clock)
        self._timetables: dict[str, tuple[Schedule, Timetable]] = {}

    async def step(self) -> int:
        """Start all fires that are due now; return how many were processed."""
        if not self._steady.believed():
            return 0
        await self._follow_clock_back()
        count = 0
        for _ in range(ROUNDS):
            due = await self._fires.due(self._clock.now(), BATCH)
            count += await self._open(await self._claim(due))
            if len(due) < BATCH:
                break
        count += await self._open(await self._still_waiting())
        left = await self._fires.unattended(self._clock.now(), PATIENCE, LOOK)
        return count + await self._open(await self._adopt(left))

    async def _still_waiting(self) -> list[Claimed]:
        """Fires that wait for agents, claimed again so that no other center takes them over."""
        now = self._clock.now()
        waiting = [claimed for claimed, _ in self._waiting.values()]
        old = [one for one in waiting if not 0 <= now - one.fire.claimed_at < PATIENCE / 3]
        renewed = await self._fires.change(
            [(one.fire, replace(one.fire, claimed_at=now, token=one.fire.token + 1)) for one in old]
        )
        fresh = {(fire.job, fire.key): fire for fire in renewed}
        for one in old:
            key = one.fire.job, one.fire.key
            _, until = self._waiting.pop(key)
            if key in fresh:  # else another center has it now
                self._waiting[key] = one._replace(fire=fresh[key]), until
        return [claimed for claimed, _ in self._waiting.values()]

    # -- a clock that was ahead

    async def _follow_clock_back(self) -> None:
        """Correct plans that a wrong clock moved into the future, with an alert."""
        monotonic, now = self._clock.monotonic(), self._clock.now()
        if not self._steady.put_right and monotonic - self._looked_ahead < LOOK_AHEAD_EVERY:
            return
        margin = AHEAD if self._steady.put_right else FAR_AHEAD
        turned, furthest = 0, now
        for _ in range(ROUNDS):
            ahead = await self._fires.ahead(now + margin, BATCH)
            changes = [pair for one in ahead if (pair := self._back(one, now))]
            turned += await self._fires.turn_back(changes) if changes else 0
            furthest = max([furthest, *(one.decided for one in ahead)])
            if len(ahead) < BATCH or not changes:
                break
        self._steady.put_right, self._looked_ahead = False, monotonic
        if turned:
            await self._warn(
                f"schedules: {turned} were decided up to {furthest - now:.0f} s ahead of this"
                " center's clock: a clock was wrong; their due times were corrected"
            )

    def _back(self, planned: Planned, now: float) -> tuple[Planned, Planned] | None:
        try:
            return planned, planned_from(planned.job, planned.schedule, now)
        except (KeyError, ValueError, OSError):
            log.exception("cannot read the schedule of job %s", planned.job)
            return None

    # -- by the clock

    async def _claim(self, due: Sequence[Planned]) -> list[Claimed]:
        now = self._clock.now()
        busy = await self._busy([p.job for p in due if p.schedule.overlap in _MINDFUL])
        schedules = {planned.job: planned.schedule for planned in due}
        steps = [self._step(planned, now, busy.get(planned.job, Busy())) for planned in due]
        return [
            Claimed(fire, schedules[fire.job])
            for fire in await self._fires.claim(steps)
            if fire.state == FireState.CLAIMED
        ]

    def _step(self, planned: Planned, now: float, busy: Busy) -> Step:
        try:
            timetable = self._timetable(planned.job, planned.schedule)
        except (KeyError, ValueError, OSError):
            log.exception("cannot read the schedule of job %s", planned.job)
            return Step(planned, planned.decided, now + UNREADABLE_AGAIN, ())
        dues: list[Due] = []
        following: int | None = None
        for following in islice(timetable.all_after(planned.decided), DUE_AT_ONCE + 1):
            # In order: a due time that waits for its jitter delays the later ones.
            if timetable.fires_at(following) > now or len(dues) == DUE_AT_ONCE:
                break
            dues.append(Due(following, timetable.fires_at(following)))
        else:
            following = None
        next_at = None if following is None else timetable.fires_at(following)
        more = next_at is not None and next_at <= now
        verdicts = decide(planned.schedule, dues, now, busy, more=more)
        fires = tuple(self._fire(planned.job, verdict, now) for verdict in verdicts)
        return Step(planned, dues[-1].at if dues else planned.decided, next_at, fires)

    def _fire(self, job: str, verdict: FireDecision, now: float) -> Fire:
        return self._written(
            Fire(job, key_of_due(verdict.due), verdict.due, FireState.DUE), verdict, now
        )

    def _written(self, fire: Fire, verdict: FireDecision, now: float) -> Fire:
        ended = 0.0 if verdict.state in {FireState.CLAIMED, FireState.QUEUED} else now
        return replace(
            fire,
            state=verdict.state,
            reason=verdict.reason or fire.reason,
            center=self._center,
            token=fire.token + 1,
            claimed_at=now,
            ended_at=ended,
        )

    async def _busy(self, jobs: Sequence[str]) -> dict[str, Busy]:
        """Claims are read before runs: a fire that is opened in between is seen as one of them."""
        if not jobs:
            return {}
        pending = await self._fires.pending(jobs)
        busy = {job: Busy(f"run {runs[0]}") for job, runs in (await self._runs.going(jobs)).items()}
        for fire in pending:
            now = busy.get(fire.job, Busy())
            if fire.state == FireState.CLAIMED:
                busy[fire.job] = now._replace(by=now.by or f"the fire of {fire.key}")
            elif fire.state == FireState.QUEUED:
                busy[fire.job] = now._replace(queued=now.queued + 1)
        return busy

    # -- fires of other centers, fires after runs, queued fires

    async def _adopt(self, left: Sequence[Fire]) -> list[Claimed]:
        """Take over fires of centers that died, then fires after other runs, then the first of
        each job's queue."""
        if not left:
            return []
        now = self._clock.now()
        jobs = sorted({fire.job for fire in left})
        schedules = {p.job: p.schedule for p in await self._fires.planned(jobs)}
        busy = await self._busy(jobs)
        changes = []
        for fire in left:
            schedule = schedules.get(fire.job, _NO_SCHEDULE)
            on_hand = busy.get(fire.job, Busy())
            verdict = _on_adoption(fire, schedule, on_hand)
            if verdict.state != fire.state or fire.state == FireState.CLAIMED:
                changes.append((fire, self._written(fire, verdict, now)))
            if verdict.state == FireState.CLAIMED:
                busy[fire.job] = on_hand._replace(by=f"the fire of {fire.key}")
        return [
            Claimed(fire, schedules.get(fire.job, _NO_SCHEDULE))
            for fire in await self._fires.change(changes)
            if fire.state == FireState.CLAIMED
        ]

    # -- opening

    async def _open(self, claimed: Sequence[Claimed]) -> int:
        if not claimed:
            return 0
        rivals = await self._rivals([one.fire.job for one in claimed if _replaces(one)])
        results = await self._together(self._open_one(one, rivals) for one in claimed)
        changes = [
            (one.fire, outcome)
            for one, outcome in zip(claimed, results, strict=True)
            if outcome is not None
        ]
        await self._fires.change(changes)
        return len(claimed)

    async def _rivals(self, jobs: Sequence[str]) -> dict[str, Rivals]:
        if not jobs:
            return {}
        going = await self._runs.going(jobs)
        planned = await self._fires.planned(jobs)
        return {one.job: Rivals(going.get(one.job, []), one.decided) for one in planned}

    async def _open_one(self, claimed: Claimed, rivals: Mapping[str, Rivals]) -> Fire | None:
        """The fire with its outcome; None leaves it claimed for any center to take over."""
        fire, schedule = claimed
        rival = rivals.get(fire.job)
        if rival is not None and fire.due_at < rival.decided and _by_the_clock(fire):
            return self._ended(fire, FireState.COALESCED, "a later due time replaced it")
        try:
            run = await self._runs.start_run(fire.job, fire.key)
            for old in rival.runs if rival is not None else ():
                if old != run:
                    await self._runs.stop_run(old, f"replaced by the fire of {fire.key}")
        except Unavailable as error:
            log.info("fire %s of job %s waits: %s", fire.key, fire.job, error.detail)
            return None
        except NotEnoughAgents as error:
            if self._waits_for_agents(claimed, error):
                return None
            return self._ended(fire, FireState.SKIPPED, error.detail)
        except SkepError as error:
            return self._ended(fire, FireState.SKIPPED, error.detail)
        self._waiting.pop((fire.job, fire.key), None)
        late = self._clock.now() - self._fires_at(fire, schedule) > schedule.grace
        outcome = FireState.LATE if late else FireState.FIRED
        return replace(self._ended(fire, outcome, fire.reason), run=run)

    def _waits_for_agents(self, claimed: Claimed, error: NotEnoughAgents) -> bool:
        key, now = (claimed.fire.job, claimed.fire.key), self._clock.monotonic()
        known = self._waiting.pop(key, None)
        if known is None:
            log.info("fire %s of job %s waits: %s", claimed.fire.key, key[0], error.detail)
        until = known[1] if known else now + self._agents_wait()
        if now < until:
            self._waiting[key] = claimed, until
        return now < until

    def _ended(self, fire: Fire, state: FireState, reason: str) -> Fire:
        return replace(fire, state=state, reason=reason, ended_at=self._clock.now())

    def _fires_at(self, fire: Fire, schedule: Schedule) -> float:
        if not _by_the_clock(fire):
            return float(fire.due_at)
        return self._timetable(fire.job, schedule).fires_at(fire.due_at)

    def _timetable(self, job: str, schedule: Schedule) -> Timetable:
        known = self._timetables.get(job)
        if known is None or known[0] != schedule:
            if len(self._timetables) > BATCH * ROUNDS:
                self._timetables.clear()
            known = self._timetables[job] = (schedule, Timetable(schedule, job))
        return known[1]


_MINDFUL = frozenset({Overlap.SKIP, Overlap.QUEUE})


def _replaces(claimed: Claimed) -> bool:
    return claimed.schedule.overlap == Overlap.REPLACE


def _by_the_clock(fire: Fire) -> bool:
    return fire.key == key_of_due(fire.due_at)


def _on_adoption(fire: Fire, schedule: Schedule, busy: Busy) -> FireDecision:
    if fire.state == FireState.CLAIMED:
        return FireDecision(fire.due_at, FireState.CLAIMED, f"taken over from {fire.center}")
    if fire.state == FireState.QUEUED:
        # With any overlap policy, a queued fire waits until its job is free.
        state = FireState.QUEUED if busy.by else FireState.CLAIMED
        return FireDecision(fire.due_at, state, f"waited: {fire.reason}")
    (verdict,) = overlapped(schedule, [FireDecision(fire.due_at, FireState.CLAIMED)], busy)
    return verdict


def planned_from(job: str, schedule: Schedule, now: float) -> Planned:
    """The plan of a schedule from now on, as the store has it."""
    timetable = Timetable(schedule, job)
    due = timetable.following(now)
    return Planned(job, schedule, int(now), None if due is None else timetable.fires_at(due))
