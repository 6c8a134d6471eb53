"""Conformance tests for stores. A backend subclasses them and supplies two fixtures.

`store` is an open, empty store; `other_store` is a second center on the same database. The tests
run against real servers, so nothing here uses internals and nothing sleeps. After every test the
ledger must add up, for each run and over all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from skep.store.ports import Store
from skep.testing.conformance.monitoring.store import (
    AlertStatePromises,
    FailureGroupPromises,
    MonitorLeasePromises,
    RunSummaryPromises,
    SeriesPromises,
    WatchPromises,
)
from skep.testing.conformance.store.agent_sessions import (
    AgentCommandPromises,
    SessionPromises,
    TokenPromises,
)
from skep.testing.conformance.store.agents_tokens_alerts import AgentPromises, RecordPromises
from skep.testing.conformance.store.apps import AppLogPromises, AppPromises, PackagePromises
from skep.testing.conformance.store.blocks import (
    FinishedPromises,
    LeasePromises,
    ReapPromises,
    SettlePromises,
)
from skep.testing.conformance.store.bulk.operations import (
    FilterTargetPromises,
    OperationPromises,
    RequestActPromises,
)
from skep.testing.conformance.store.deliveries import DeliveryPromises
from skep.testing.conformance.store.failures import FailurePromises, FilteredRequestPromises
from skep.testing.conformance.store.generators import GeneratorPromises
from skep.testing.conformance.store.ground import assert_accounted
from skep.testing.conformance.store.hosts import (
    LetGoPromises,
    NotePromises,
    PackHostsPromises,
    RulePromises,
)
from skep.testing.conformance.store.hosts_race import HostRacePromises
from skep.testing.conformance.store.jobs import JobPromises, JobRunPromises
from skep.testing.conformance.store.pages_read_again import PagePromises
from skep.testing.conformance.store.people.audit import AuditPromises
from skep.testing.conformance.store.people.scopes import ScopePromises
from skep.testing.conformance.store.people.secrets import SecretPromises
from skep.testing.conformance.store.people.sessions import (
    LoginLinkPromises,
    ScopedTokenPromises,
    UserSessionPromises,
)
from skep.testing.conformance.store.people.users import UserPromises
from skep.testing.conformance.store.pipelines.pool import PoolPromises
from skep.testing.conformance.store.placement import (
    AllocationPromises,
    ChainPromises,
    TargetPromises,
)
from skep.testing.conformance.store.random_walk import RacePromises, WalkPromises
from skep.testing.conformance.store.requests import (
    AcceptPromises,
    PackPromises,
    RunPromises,
    SweepPromises,
)
from skep.testing.conformance.store.retention import NoticePromises, RetentionPromises
from skep.testing.conformance.store.run_ends import (
    AnswerPromises,
    DriverPromises,
    EndPromises,
    FigurePromises,
)
from skep.testing.conformance.store.schedules import FirePromises, SchedulePromises
from skep.testing.conformance.store.self_checks import CheckPromises
from skep.testing.conformance.store.waits import WaitPromises


class StoreConformance(
    CheckPromises,
    RunPromises,
    AcceptPromises,
    PackPromises,
    SweepPromises,
    LeasePromises,
    SettlePromises,
    ReapPromises,
    FinishedPromises,
    PagePromises,
    EndPromises,
    DriverPromises,
    AnswerPromises,
    FigurePromises,
    AgentPromises,
    SessionPromises,
    AgentCommandPromises,
    TokenPromises,
    RecordPromises,
    JobPromises,
    JobRunPromises,
    DeliveryPromises,
    GeneratorPromises,
    AppPromises,
    AppLogPromises,
    PackagePromises,
    SchedulePromises,
    FirePromises,
    FailurePromises,
    FilteredRequestPromises,
    RetentionPromises,
    NoticePromises,
    OperationPromises,
    RequestActPromises,
    FilterTargetPromises,
    PackHostsPromises,
    LetGoPromises,
    NotePromises,
    RulePromises,
    HostRacePromises,
    WaitPromises,
    AllocationPromises,
    TargetPromises,
    ChainPromises,
    UserPromises,
    UserSessionPromises,
    LoginLinkPromises,
    ScopedTokenPromises,
    ScopePromises,
    SecretPromises,
    AuditPromises,
    PoolPromises,
    WalkPromises,
    RacePromises,
    MonitorLeasePromises,
    SeriesPromises,
    AlertStatePromises,
    FailureGroupPromises,
    RunSummaryPromises,
    WatchPromises,
):
    """The whole contract of `store/ports`."""

    @pytest.fixture(autouse=True)
    async def everything_is_accounted_for(self, store: Store) -> AsyncIterator[None]:
        yield
        await assert_accounted(store)
        assert (await store.pool.ledger()).unaccounted == 0
