"""What every store must do, as tests. A backend subclasses it and supplies two fixtures.

`store` is an opened, empty store; `other_store` is a second center on the same database.
The tests run against real servers, so nothing here looks inside and nothing sleeps. After
every test the ledger must add up, for each run and over all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from skep.store.ports import Store
from skep.testing.conformance.store_apps import AppLogPromises, AppPromises, PackagePromises
from skep.testing.conformance.store_blocks import (
    FinishedPromises,
    LeasePromises,
    ReapPromises,
    SettlePromises,
)
from skep.testing.conformance.store_checks import CheckPromises
from skep.testing.conformance.store_deliveries import DeliveryPromises
from skep.testing.conformance.store_desk import AgentPromises, DeskPromises
from skep.testing.conformance.store_endings import (
    AnswerPromises,
    DriverPromises,
    EndPromises,
    FigurePromises,
)
from skep.testing.conformance.store_failures import FailurePromises, FilteredRequestPromises
from skep.testing.conformance.store_fires import FirePromises, SchedulePromises
from skep.testing.conformance.store_fleet import OrderPromises, SessionPromises, TokenPromises
from skep.testing.conformance.store_generators import GeneratorPromises
from skep.testing.conformance.store_ground import assert_accounted
from skep.testing.conformance.store_jobs import JobPromises, JobRunPromises
from skep.testing.conformance.store_keeping import KeepingPromises, NoticePromises
from skep.testing.conformance.store_pages import PagePromises
from skep.testing.conformance.store_placement import (
    AllocationPromises,
    ChainPromises,
    TargetPromises,
)
from skep.testing.conformance.store_requests import (
    AcceptPromises,
    PackPromises,
    RunPromises,
    SweepPromises,
)
from skep.testing.conformance.store_sites import (
    LetGoPromises,
    NotePromises,
    PackSitesPromises,
    RulePromises,
)
from skep.testing.conformance.store_sites_race import SiteRacePromises
from skep.testing.conformance.store_waits import WaitPromises
from skep.testing.conformance.store_walk import RacePromises, WalkPromises


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
    OrderPromises,
    TokenPromises,
    DeskPromises,
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
    KeepingPromises,
    NoticePromises,
    PackSitesPromises,
    LetGoPromises,
    NotePromises,
    RulePromises,
    SiteRacePromises,
    WaitPromises,
    AllocationPromises,
    TargetPromises,
    ChainPromises,
    WalkPromises,
    RacePromises,
):
    """Every promise of `store/ports.py`."""

    @pytest.fixture(autouse=True)
    async def everything_is_accounted_for(self, store: Store) -> AsyncIterator[None]:
        yield
        await assert_accounted(store)
