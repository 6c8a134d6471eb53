"""The store's contract for figures over time, alert rules, failure groups and run summaries.

The rules of `store/ports` apply. Work that only one center should do carries a lease, which is
checked in the same transaction: a center that was paused cannot write after another took over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from skep.model.jobs.notice import Notice
from skep.model.monitoring.alerts import Alert, AlertChange, AlertRule
from skep.model.monitoring.failure_groups import GroupHistory, GroupQuery, GroupState, KeptGroup
from skep.model.monitoring.run_summary import RunSummary
from skep.model.monitoring.series import SeriesRow


class MonitorLease(msgspec.Struct, frozen=True):
    """Held by one center; the token rises when another one takes it."""

    name: str
    holder: str
    token: int


class EndedSummary(msgspec.Struct, frozen=True):
    """A run that ended and is not compared with its history yet."""

    run: str
    job: str
    state: str
    ended_at: float


class ItemSample(msgspec.Struct, frozen=True):
    """The number of a run's items, and some of them, as stored."""

    items: int
    sample: list[bytes]


class Returned(msgspec.Struct, frozen=True):
    """A resolved failure group whose failure came back."""

    group: str
    host: str
    text: str
    died: int


class SeriesStore(Protocol):
    """Rows of series. A row of a flush is written once, however often the call is made."""

    async def add(self, rows: Sequence[SeriesRow]) -> int:
        """Store the rows of a flush in one transaction; returns how many were new."""

    async def read(self, step: int, run: str, start: int, end: int, limit: int) -> list[SeriesRow]:
        """Rows of one scope with start <= at < end, the oldest first."""

    async def recent(self, step: int, start: int, limit: int) -> list[SeriesRow]:
        """Rows of all scopes with at >= start."""

    async def roll_up(self, lease: MonitorLease, steps: Sequence[int], limit: int) -> int:
        """Add up to `limit` fine rows to the rows of the coarser steps, each once; returns how
        many. Raises LostLease."""

    async def trim(
        self, lease: MonitorLease, ages: Sequence[tuple[int, int]], rows: int, limit: int
    ) -> int:
        """Delete at most `limit` rows per step that are older than (step, at), and the oldest
        beyond `rows` per step; rows that are not rolled up stay. Raises LostLease."""


class AlertRules(Protocol):
    """Rules of users; built-in rules that were changed are among them."""

    async def all(self) -> dict[str, AlertRule]:
        """By name. A rule that this version cannot read is left out."""

    async def save(self, name: str, rule: AlertRule, limit: int, now: float) -> None:
        """Raises Conflict when it is new and there are `limit` rules."""

    async def delete(self, name: str) -> bool:
        """False when there is none."""


class AlertStates(Protocol):
    """States of alerts. The rows are those of `Alerts`."""

    async def find(self, states: Sequence[str], limit: int) -> list[Alert]:
        """In these stored states, newest first; an empty list = in any."""

    async def apply(self, lease: MonitorLease, changes: Sequence[AlertChange], now: float) -> int:
        """Alerts of rules start or end; one that is in its state already keeps its count of
        changes. Returns how many states changed. Raises LostLease."""

    async def acknowledge(self, kind: str, subject: str, by: str, now: float) -> Alert:
        """Raises NotFound."""

    async def mute(self, kind: str, subject: str, until: float) -> Alert:
        """No notices until then; 0 ends it. Raises NotFound."""

    async def untold(self, limit: int) -> list[Alert]:
        """Alerts whose last change has no notices yet, oldest first."""

    async def tell(
        self, lease: MonitorLease, alerts: Sequence[Alert], notices: Sequence[Notice]
    ) -> None:
        """Post notices and mark these changes as told, in one transaction. An alert that changed
        meanwhile stays untold. Raises LostLease."""

    async def expire(self, lease: MonitorLease, quiet: float, delete: float) -> int:
        """Resolve events that were last raised before `quiet`, without notices; delete resolved
        alerts older than `delete`. Raises LostLease."""


class FailureGroups(Protocol):
    """Groups of dead requests, counted with every request that dies."""

    async def find(self, wanted: GroupQuery) -> list[KeptGroup]:
        """Last seen first."""

    async def get(self, group: str) -> tuple[KeptGroup, GroupHistory]:
        """Raises NotFound."""

    async def change(
        self, group: str, state: GroupState, note: str | None, by: str, now: float
    ) -> KeptGroup:
        """Set its state, and its note unless None. Raises NotFound."""

    async def follow(
        self, lease: MonitorLease, now: float, limit: int
    ) -> tuple[int, list[Returned]]:
        """Write the history of groups with new deaths; resolved ones are reopened and raise an
        alert, in the same transaction. Returns (groups, those that returned)."""

    async def trim(self, lease: MonitorLease, keep: int, before: float, limit: int) -> int:
        """Delete groups that were last seen before a time, and the oldest open ones without a
        note beyond `keep`; what they counted is added to a group for other hosts."""


class RunSummaries(Protocol):
    """Summaries of ended runs."""

    async def unjudged(self, limit: int) -> list[EndedSummary]:
        """Runs that ended and have no summary, oldest first."""

    async def items(self, run: str, sample: int) -> ItemSample:
        """Number of items and a sample from all parts of the run."""

    async def history(self, job: str, before: float, limit: int) -> list[RunSummary]:
        """Summaries of finished runs of a job that ended before a time, newest first."""

    async def judge(
        self, lease: MonitorLease, run: str, summary: RunSummary | None, finding: str
    ) -> bool:
        """Store a summary once; False when it is there already. Raises LostLease."""

    async def forget(self, lease: MonitorLease, before: float, limit: int) -> int:
        """Delete summaries of runs that ended before a time."""


class StaleRun(msgspec.Struct, frozen=True):
    """A running run with requests to do that got no answers lately."""

    run: str
    job: str
    open: int


class LateJob(msgspec.Struct, frozen=True):
    """A schedule that no center has checked since it was due."""

    job: str
    due_at: float


class Watches(Protocol):
    """Conditions that are read from rows of other domains, with an index each."""

    async def stale_runs(self, now: float, limit: int) -> list[StaleRun]:
        """Running runs with waiting, queued or leased requests and no answer in the last two
        minutes, oldest first."""

    async def late_jobs(self, before: float, limit: int) -> list[LateJob]:
        """Schedules that were due before a time and are not decided."""


class Monitoring(Protocol):
    """All of it."""

    @property
    def series(self) -> SeriesStore: ...
    @property
    def rules(self) -> AlertRules: ...
    @property
    def alerts(self) -> AlertStates: ...
    @property
    def groups(self) -> FailureGroups: ...
    @property
    def summaries(self) -> RunSummaries: ...
    @property
    def watches(self) -> Watches: ...

    async def lease(self, name: str, holder: str, now: float, until: float) -> MonitorLease | None:
        """Take or renew a lease; None while another center holds it."""
