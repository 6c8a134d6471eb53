"""The contract of a store with centers, one small Protocol per domain.

Every method is one transaction: it is on disk when it returns, or it raised and changed
nothing. `now` is always the center's clock. A method raises `DiskFull` when the database
cannot write, `InvalidInput` for a value that it cannot hold, and `StoreDown` when the database
does not answer. After `StoreDown` all of the call or nothing of it is stored (the connection
may have broken during the commit); making the same call again is safe for every method.
`testing/conformance/store` proves all of this against each database.
"""

from __future__ import annotations

from typing import Protocol

from skep.store.ports.agents import Agents, Tokens
from skep.store.ports.apps import Apps, Packages
from skep.store.ports.audit import AuditLog
from skep.store.ports.blocks import Blocks
from skep.store.ports.checkpoints import CheckpointStore
from skep.store.ports.deliveries import Deliveries
from skep.store.ports.dispatch_log import Dispatches
from skep.store.ports.ended_work import Failures, Notices, RetentionStore
from skep.store.ports.generators import Generations
from skep.store.ports.hosts import Hosts
from skep.store.ports.jobs import JobRuns, Jobs
from skep.store.ports.lists import Lists
from skep.store.ports.live import LiveLists
from skep.store.ports.logs import LogPieces
from skep.store.ports.monitoring import Monitoring
from skep.store.ports.operations import Operations, Targets
from skep.store.ports.people import LoginLinks, Secrets, Sessions, Users
from skep.store.ports.pipelines.pool import Pool
from skep.store.ports.placement import Allocations
from skep.store.ports.records import Alerts, Segments
from skep.store.ports.requests import Ledgers, Requests
from skep.store.ports.runs import Figures, Runs
from skep.store.ports.schedules import Fires
from skep.store.ports.self_checks import Checks
from skep.store.ports.views import Views
from skep.store.ports.waits import Waits


class Store(Protocol):
    """The whole store, opened by URL in `store/open_store.py`."""

    @property
    def runs(self) -> Runs: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def blocks(self) -> Blocks: ...
    @property
    def checkpoints(self) -> CheckpointStore: ...
    @property
    def agents(self) -> Agents: ...
    @property
    def allocations(self) -> Allocations: ...
    @property
    def ledgers(self) -> Ledgers: ...
    @property
    def figures(self) -> Figures: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def alerts(self) -> Alerts: ...
    @property
    def fires(self) -> Fires: ...
    @property
    def segments(self) -> Segments: ...
    @property
    def hosts(self) -> Hosts: ...
    @property
    def waits(self) -> Waits: ...
    @property
    def jobs(self) -> Jobs: ...
    @property
    def dispatches(self) -> Dispatches: ...
    @property
    def job_runs(self) -> JobRuns: ...
    @property
    def deliveries(self) -> Deliveries: ...
    @property
    def generations(self) -> Generations: ...
    @property
    def failures(self) -> Failures: ...
    @property
    def retention(self) -> RetentionStore: ...
    @property
    def notices(self) -> Notices: ...
    @property
    def apps(self) -> Apps: ...
    @property
    def packages(self) -> Packages: ...
    @property
    def checks(self) -> Checks: ...
    @property
    def logs(self) -> LogPieces: ...
    @property
    def users(self) -> Users: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def login_links(self) -> LoginLinks: ...
    @property
    def audit(self) -> AuditLog: ...
    @property
    def monitoring(self) -> Monitoring: ...
    @property
    def operations(self) -> Operations: ...
    @property
    def targets(self) -> Targets: ...
    @property
    def live(self) -> LiveLists: ...
    @property
    def lists(self) -> Lists: ...
    @property
    def views(self) -> Views: ...
    @property
    def pool(self) -> Pool: ...
    @property
    def secrets(self) -> Secrets: ...

    async def open(self) -> None:
        """Connect and bring the schema to this version, under a lock."""

    async def close(self) -> None:
        """Finish started calls and disconnect."""

    async def ping(self) -> None:
        """Raises StoreDown."""

    def describe(self) -> str:
        """The URL without its password, for display."""
