"""Evaluates alert rules, and posts notices of changes. Run by the center that holds the lease.

Times are kept in memory: a center that takes over starts the duration of pending alerts anew, and
finds firing ones in the store. Each change of state is stored first; the transaction that posts its
notices also marks it as notified.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

import msgspec

from skep.errors import SkepError, Unavailable
from skep.model.jobs.notice import Notice
from skep.model.monitoring.alerts import RETURNED, Alert, AlertChange, NamedRule
from skep.monitoring.measures import Measures, Readings
from skep.monitoring.rule_state import Phase, advance
from skep.runtime.masking import mask_text
from skep.settings import NoticeSettings
from skep.store.ports import Store
from skep.store.ports.monitoring import MonitorLease

log = logging.getLogger(__name__)

#: Firing alerts that a center remembers, and subjects of one rule.
REMEMBERED = 5000
#: Changes that are notified in one step, and alerts in one notice.
TOLD_AT_ONCE = 500
GROUPED = 50


class Alerting:
    """The alerts of all rules, while this center leads."""

    def __init__(self, store: Store, measures: Measures) -> None:
        self._store = store
        self._measures = measures
        self._phases: dict[tuple[str, str], Phase] = {}
        self._lease: MonitorLease | None = None

    async def step(self, lease: MonitorLease, rules: Sequence[NamedRule], now: float) -> int:
        """Evaluate every rule once; returns the number of changes."""
        if lease != self._lease:
            await self._take_over(now)
            self._lease = lease
        self._measures.forget()
        changes: list[AlertChange] = []
        for named in rules:
            changes += await self._evaluated(named, now)
        known = {named.name for named in rules}
        changes += [_gone(key) for key in self._phases if key[0] not in known and self._fires(key)]
        if not changes:
            return 0
        count = await self._store.monitoring.alerts.apply(lease, changes, now)
        for change in changes:
            log.warning("alert %s of %s: %s", change.kind, change.subject, change.state)
        self._forget_ended(known)
        return count

    async def _take_over(self, now: float) -> None:
        firing = await self._store.monitoring.alerts.find(["firing"], REMEMBERED)
        self._phases = {
            (one.kind, one.subject): Phase("firing", 0.0, now)
            for one in firing
            if one.by_rule and one.kind != RETURNED
        }

    async def _evaluated(self, named: NamedRule, now: float) -> list[AlertChange]:
        mine = {subject for kind, subject in self._phases if kind == named.name}
        if not named.rule.enabled:
            return [_gone((named.name, one)) for one in mine if self._fires((named.name, one))]
        try:
            found = await self._measures.read(named.rule)
        except Unavailable:
            raise
        except SkepError as error:
            log.warning("alert rule %s cannot be evaluated: %s", named.name, error.detail)
            return []
        if found is None:
            return []
        subjects = sorted({*mine, *found})[:REMEMBERED]
        return [c for one in subjects for c in self._advanced(named, one, found, now)]

    def _advanced(
        self, named: NamedRule, subject: str, found: Readings, now: float
    ) -> list[AlertChange]:
        key, rule = (named.name, subject), named.rule
        reading = found.get(subject)
        value = None if reading is None else reading.value
        phase, change = advance(rule, self._phases.get(key, Phase()), value, now)
        if phase.state == "ok" and not change:
            self._phases.pop(key, None)
            return []
        self._phases[key] = phase
        if not change:
            return []
        detail = "it is over" if reading is None else reading.detail
        return [AlertChange(named.name, subject, change, detail, rule.severity, rule.notify)]

    def _fires(self, key: tuple[str, str]) -> bool:
        return self._phases[key].state in {"firing", "ending"}

    def _forget_ended(self, known: set[str]) -> None:
        self._phases = {
            key: phase
            for key, phase in self._phases.items()
            if phase.state != "ok" and key[0] in known
        }


def _gone(key: tuple[str, str]) -> AlertChange:
    kind, subject = key
    return AlertChange(kind, subject, "resolved", "the rule is off", notify=False)


class AlertNotices:
    """Posts the notices of changed alerts."""

    def __init__(self, store: Store, settings: NoticeSettings) -> None:
        self._store = store
        self._settings = settings

    async def step(self, lease: MonitorLease, now: float) -> int:
        """Post one notice per kind and state of what changed; returns the number of changes."""
        untold = await self._store.monitoring.alerts.untold(TOLD_AT_ONCE)
        groups: dict[tuple[str, str], list[Alert]] = {}
        for alert in untold:
            groups.setdefault((alert.kind, alert.state), []).append(alert)
        for alerts in groups.values():
            for start in range(0, len(alerts), GROUPED):
                await self._tell(lease, alerts[start : start + GROUPED], now)
        return len(untold)

    async def _tell(self, lease: MonitorLease, alerts: list[Alert], now: float) -> None:
        told = [one for one in alerts if one.muted_until <= now and one.severity != "info"]
        notices = self._notices(told, now) if told and self._settings.alerts else []
        await self._store.monitoring.alerts.tell(lease, alerts, notices)

    def _notices(self, alerts: list[Alert], now: float) -> list[Notice]:
        body, name = notice_body(alerts, now), _digest(alerts)
        targets = [("webhook", url, self._settings.secret) for url in self._settings.webhooks]
        targets += [("mail", address, "") for address in self._settings.mails]
        return [
            Notice(
                f"msg_alert_{name}_{number}",
                "",
                f"alert {alerts[0].kind}",
                kind,
                target,
                secret,
                body,
                "waiting",
                0,
                now,
                now,
            )
            for number, (kind, target, secret) in enumerate(targets)
        ]


def notice_body(alerts: Sequence[Alert], now: float) -> bytes:
    """The JSON of one notice about alerts of one kind in one state."""
    first = alerts[0]
    listed = [
        {"subject": one.subject, "detail": mask_text(one.detail), "severity": one.severity}
        | {"since": one.changed_at, "times": one.times}
        for one in alerts
    ]
    data = {"kind": first.kind, "state": first.state, "alerts": listed}
    return msgspec.json.encode({"type": f"alert.{first.state}", "timestamp": now, "data": data})


def _digest(alerts: Sequence[Alert]) -> str:
    """The same for the same changes, so that a second center posts nothing twice."""
    named = [(one.kind, one.subject, one.changes, one.changed_at) for one in alerts]
    return hashlib.blake2b(msgspec.msgpack.encode(named), digest_size=12).hexdigest()
