"""Assembles the tables of monitoring, and their lease. Run by centers only."""

from __future__ import annotations

from skep.store.ports.monitoring import MonitorLease
from skep.store.sql.engine.database import Database
from skep.store.sql.monitoring.alert_states import SqlAlertRules, SqlAlertStates
from skep.store.sql.monitoring.failure_groups import SqlFailureGroups
from skep.store.sql.monitoring.leases import take_lease
from skep.store.sql.monitoring.run_summaries import SqlRunSummaries
from skep.store.sql.monitoring.series import SqlSeries
from skep.store.sql.monitoring.watches import SqlWatches


class SqlMonitoring:
    """Implements `Monitoring`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.series = SqlSeries(database)
        self.rules = SqlAlertRules(database)
        self.alerts = SqlAlertStates(database)
        self.groups = SqlFailureGroups(database)
        self.summaries = SqlRunSummaries(database)
        self.watches = SqlWatches(database)

    async def lease(self, name: str, holder: str, now: float, until: float) -> MonitorLease | None:
        return await self._database.write(lambda tx: take_lease(tx, name, holder, now, until))
