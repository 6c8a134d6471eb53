"""Compares finished runs with earlier ones of their job. Run by the center that leads.

Reads kept sums and a sample of items, once per run; it never adds up requests.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

import msgspec

from skep.errors import NotFound
from skep.model.monitoring.alerts import AlertChange, AlertRule
from skep.model.monitoring.buckets import plain_label
from skep.model.monitoring.run_summary import FIELDS_LIMIT, RunSummary
from skep.monitoring.silent_failure import HISTORY, NEEDED, findings, findings_text
from skep.store.ports import Store
from skep.store.ports.monitoring import EndedSummary, MonitorLease

log = logging.getLogger(__name__)

KIND = "silent_failure"
AT_ONCE = 20
SAMPLE = 500


class RunJudge:
    """Summaries and silent failures."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def step(self, lease: MonitorLease, rule: AlertRule, now: float) -> int:
        """Judge some runs; returns how many."""
        ended = await self._store.monitoring.summaries.unjudged(AT_ONCE)
        for one in ended:
            await self._judge(lease, rule, one, now)
        return len(ended)

    async def _judge(
        self, lease: MonitorLease, rule: AlertRule, ended: EndedSummary, now: float
    ) -> None:
        summaries = self._store.monitoring.summaries
        try:
            summary = await self._summary(ended, now)
        except NotFound:  # the run was deleted meanwhile
            await summaries.judge(lease, ended.run, None, "")
            return
        history = await summaries.history(ended.job, ended.ended_at, HISTORY)
        found = [one for one in findings(summary, history) if one.score >= rule.threshold]
        text = findings_text(found)
        # The alert first: after a crash in between, it is raised again, which changes nothing.
        if rule.enabled and len(history) >= NEEDED and ended.job.startswith(rule.subject):
            detail = f"run {ended.run}: {text}" if found else f"run {ended.run} is as usual"
            state = "firing" if found else "resolved"
            change = AlertChange(KIND, ended.job, state, detail, rule.severity, rule.notify)  # type: ignore[arg-type]  # one of the two words
            await self._store.monitoring.alerts.apply(lease, [change], now)
        if found:
            log.warning("run %s of job %s: %s", ended.run, ended.job, text)
        await summaries.judge(lease, ended.run, summary, text)

    async def _summary(self, ended: EndedSummary, now: float) -> RunSummary:
        figures = await self._store.figures.read(ended.run, now)
        ledger = await self._store.ledgers.read(ended.run)
        sampled = await self._store.monitoring.summaries.items(ended.run, SAMPLE)
        answers = sum(figures.statuses.values())
        return RunSummary(
            ended.run,
            ended.job,
            ended.ended_at,
            done=ledger.done,
            dead=ledger.dead,
            answers=answers,
            items=sampled.items,
            page_size=figures.received / answers if answers else 0.0,
            statuses={name: n / answers for name, n in figures.statuses.items()},
            fields=fill_rates(sampled.sample),
        )


def _has_value(value: object) -> bool:
    return value not in (None, "", [], {})


def fill_rates(sample: Sequence[bytes]) -> dict[str, float]:
    """Share of the items in which each field has a value; items that cannot be read count as
    empty."""
    filled: Counter[str] = Counter()
    for data in sample:
        try:
            item = msgspec.msgpack.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(item, dict):
            filled.update(
                plain_label(str(k)) for k, v in item.items() if v not in (None, "", [], {})
            )
    return {name: count / len(sample) for name, count in filled.most_common(FIELDS_LIMIT)}
