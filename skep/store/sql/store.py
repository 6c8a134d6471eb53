"""Assembles the SQL store and migrates its schema. Run by centers only.

It opens, connects and closes; each module documents its own tables.
"""

from __future__ import annotations

import asyncio

import sqlalchemy as sa

from skep.store.sql.agents.agents import SqlAgents
from skep.store.sql.agents.allocations import SqlAllocations
from skep.store.sql.apps.instances import SqlApps
from skep.store.sql.apps.packages import SqlPackages
from skep.store.sql.blocks.blocks import SqlBlocks
from skep.store.sql.engine.database import PATIENCE, Database
from skep.store.sql.engine.dialects.registry import dialect_for
from skep.store.sql.engine.migrate import bring_up_to_date
from skep.store.sql.engine.sqlite_file import StoreFile, make_ready
from skep.store.sql.filters.lists import SqlLists
from skep.store.sql.hosts.hosts import SqlHosts
from skep.store.sql.jobs.generators import SqlGenerations
from skep.store.sql.jobs.jobs import SqlJobs
from skep.store.sql.jobs.schedules import SqlFires
from skep.store.sql.logs.log_pieces import SqlLogPieces
from skep.store.sql.monitoring.monitoring import SqlMonitoring
from skep.store.sql.operations.operations import SqlOperations
from skep.store.sql.operations.targets import SqlTargets
from skep.store.sql.people.audit import SqlAuditLog
from skep.store.sql.people.sessions import SqlLoginLinks, SqlSessions
from skep.store.sql.people.users import SqlUsers
from skep.store.sql.pool.pool import SqlPool
from skep.store.sql.records.alerts_and_segments import SqlAlerts, SqlSegments
from skep.store.sql.records.deliveries import SqlDeliveries
from skep.store.sql.records.dispatch_log import SqlDispatches
from skep.store.sql.records.live_lists import SqlLiveLists
from skep.store.sql.records.notices import SqlNotices
from skep.store.sql.records.retention import SqlRetention
from skep.store.sql.records.secrets import SqlSecrets
from skep.store.sql.records.self_checks import SqlChecks
from skep.store.sql.records.tokens import SqlTokens
from skep.store.sql.records.views import SqlViews
from skep.store.sql.requests.explain import SqlWaits
from skep.store.sql.requests.failures import SqlFailures
from skep.store.sql.requests.ledgers import SqlLedgers
from skep.store.sql.requests.requests import SqlRequests
from skep.store.sql.runs.checkpoints import SqlCheckpoints
from skep.store.sql.runs.figures import SqlFigures
from skep.store.sql.runs.job_runs import SqlJobRuns
from skep.store.sql.runs.runs import SqlRuns


class SqlStore:
    """Implements `Store` of `store/ports` on any database that `dialect` knows."""

    def __init__(
        self,
        url: str,
        readers: int = 2,
        group_limit: int = 256,
        *,
        inline: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        self._url = sa.make_url(url)
        self._inline = inline
        dialect = dialect_for(self._url)
        self.database = Database(
            self._url, dialect, readers, group_limit, inline=inline, patience=patience
        )
        self.runs = SqlRuns(self.database)
        self.requests = SqlRequests(self.database)
        self.blocks = SqlBlocks(self.database)
        self.checkpoints = SqlCheckpoints(self.database)
        self.agents = SqlAgents(self.database)
        self.allocations = SqlAllocations(self.database)
        self.ledgers = SqlLedgers(self.database)
        self.figures = SqlFigures(self.database)
        self.tokens = SqlTokens(self.database)
        self.alerts = SqlAlerts(self.database)
        self.segments = SqlSegments(self.database)
        self.hosts = SqlHosts(self.database)
        self.waits = SqlWaits(self.database)
        self.jobs = SqlJobs(self.database)
        self.job_runs = SqlJobRuns(self.database)
        self.deliveries = SqlDeliveries(self.database)
        self.fires = SqlFires(self.database)
        self.generations = SqlGenerations(self.database)
        self.dispatches = SqlDispatches(self.database)
        self.failures = SqlFailures(self.database)
        self.retention = SqlRetention(self.database)
        self.notices = SqlNotices(self.database)
        self.apps = SqlApps(self.database)
        self.packages = SqlPackages(self.database)
        self.checks = SqlChecks(self.database)
        self.logs = SqlLogPieces(self.database)
        self.users = SqlUsers(self.database)
        self.sessions = SqlSessions(self.database)
        self.login_links = SqlLoginLinks(self.database)
        self.audit = SqlAuditLog(self.database)
        self.monitoring = SqlMonitoring(self.database)
        self.operations = SqlOperations(self.database)
        self.targets = SqlTargets(self.database)
        self.live = SqlLiveLists(self.database)
        self.lists = SqlLists(self.database)
        self.views = SqlViews(self.database)
        self.pool = SqlPool(self.database)
        self.secrets = SqlSecrets(self.database)

    async def open(self) -> None:
        if self._inline:
            self._prepare()
            return
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._prepare)
        self.database.start()

    def _prepare(self) -> None:
        file = self.database.dialect.file(self._url)
        if file is not None:
            make_ready(file)
        bring_up_to_date(self.database)
        if file is not None:
            self.database.watch(StoreFile(file.absolute()))

    async def close(self) -> None:
        await self.database.stop()

    async def ping(self) -> None:
        await self.database.read(lambda connection: connection.exec_driver_sql("SELECT 1"))
        self.database.check_file()

    def describe(self) -> str:
        return self._url.render_as_string(hide_password=True)
