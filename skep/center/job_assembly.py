"""The rooms of jobs put together for one center. Assembly only.

Run once when a center is built. Rooms get what they need as arguments; nothing starts here.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from random import Random

from skep.archive.ports import Archive
from skep.center.http.authentication import Auth, DriverPasses
from skep.center.placement_assembly import PlacementAssembly
from skep.downloaders.code.limit_ceiling import Ceiling
from skep.downloaders.egress_policy import EgressPolicy
from skep.jobs.apps.agent_choice import AgentChoice
from skep.jobs.apps.app_supervisor import AppSupervisor, Tell
from skep.jobs.apps.git_checkout import GitPacker
from skep.jobs.apps.packing import Packer
from skep.jobs.apps.secrets import AppSecrets
from skep.jobs.definitions.connection_limits import job_limits
from skep.jobs.definitions.job_check import Checker
from skep.jobs.definitions.job_repository import JobRepository
from skep.jobs.generators.code_sandbox import CodeSandboxes
from skep.jobs.generators.generator_feed import Feeder
from skep.jobs.generators.sources import Sources
from skep.jobs.generators.trial import GeneratorTrials
from skep.jobs.intake import Intake
from skep.jobs.request_validation import Validator
from skep.jobs.runs.delivery import Deliverer
from skep.jobs.runs.run_start import RunStarts
from skep.jobs.runs.run_supervisor import RunSupervisor
from skep.jobs.runs.spider_process import Spawner
from skep.jobs.schedule.firing import Firing
from skep.jobs.schedule.plans import StoreScheduler
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.store.ports import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobAssembly:
    """Definitions, schedules, starts, and whoever sees to the runs."""

    book: JobRepository
    starts: RunStarts
    supervisor: RunSupervisor
    scheduler: StoreScheduler
    firing: Firing
    feeder: Feeder
    deliverer: Deliverer


def build_jobs(
    name: str,
    settings: Settings,
    store: Store,
    archive: Archive,
    auth: Auth,
    validator: Validator,
    intake: Intake,
    placement: PlacementAssembly,
    tell: Tell,
    clock: Clock,
    rng: Random,
) -> JobAssembly:
    """Nothing is started yet."""
    scheduler = StoreScheduler(store.fires, store.jobs, clock)
    data, folder = Path(settings.data).absolute(), Path(settings.jobs.folder or ".").absolute()
    jobs = settings.jobs
    egress = EgressPolicy.of(settings.egress, centers=[settings.center.port])
    ceiling = Ceiling.of(settings.agent)
    boxes = CodeSandboxes(egress, clock, jobs.generator_processes, jobs.code, ceiling)
    limits = job_limits(settings)
    sources = Sources(boxes, folder, os.environ, limits, clock)
    restart = Backoff(first=jobs.restart_first, cap=jobs.restart_cap)
    feeder = Feeder(store, intake, archive, sources, clock, rng, restart)

    def agents_wait() -> float:
        return max(settings.center.allocate_wait, placement.roster.judges_in)

    starts = RunStarts(name, store, intake, feeder, clock, rng, agents_wait)
    packer = Packer(store, folder, jobs.package_bytes, GitPacker(egress, os.environ), clock)
    places = AgentChoice(store, placement.roster, placement.placer, placement.allocator, clock, rng)
    apps = AppSupervisor(jobs, store, intake, places, packer, tell, clock)
    deliverer = Deliverer(name, jobs, store, data, limits, clock, rng)
    supervisor = RunSupervisor(
        name,
        settings.jobs,
        store,
        intake,
        starts,
        feeder,
        scheduler,
        Spawner(folder, data, os.environ, jobs.code),
        DriverPasses(auth, store),
        apps,
        deliverer,
        clock,
        rng,
    )
    kinds, secrets = sorted(validator.downloaders), AppSecrets.of(settings, warn=True)
    checker = Checker(validator, kinds, folder, secrets, limits)
    trials = GeneratorTrials(sources, validator, clock)
    book = JobRepository(store, checker, scheduler, clock, trials, jobs.test_seconds)

    async def warn(detail: str) -> None:
        log.warning("%s", detail)
        await store.alerts.raise_("clock_set_back", name, detail, clock.now())

    firing = Firing(store.fires, starts, clock, name, agents_wait=agents_wait, warn=warn)
    return JobAssembly(book, starts, supervisor, scheduler, firing, feeder, deliverer)
