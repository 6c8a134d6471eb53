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
from skep.center.auth import Auth, DriverPasses
from skep.center.placement_rooms import PlacementRooms
from skep.downloaders.code.ceiling import Ceiling
from skep.downloaders.egress import EgressPolicy
from skep.jobs.app_git import GitPacker
from skep.jobs.app_keeper import AppKeeper, Tell
from skep.jobs.app_packer import Packer
from skep.jobs.app_places import Places
from skep.jobs.app_secrets import AppSecrets
from skep.jobs.book import JobBook
from skep.jobs.definition import Checker
from skep.jobs.delivery import Deliverer
from skep.jobs.feeding import Feeder
from skep.jobs.fires import Firing
from skep.jobs.generator_box import Boxes
from skep.jobs.generator_sources import Sources
from skep.jobs.generator_trial import Trials
from skep.jobs.intake import Intake
from skep.jobs.job_limits import job_limits
from skep.jobs.keeper import Keeper
from skep.jobs.scheduler import StoreScheduler
from skep.jobs.spider_process import Spawner
from skep.jobs.starts import JobStarts
from skep.jobs.validate import Validator
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.store.ports import Store

log = logging.getLogger("skep.jobs")


@dataclass(frozen=True, slots=True)
class JobRooms:
    """Definitions, schedules, starts, and whoever sees to the runs."""

    book: JobBook
    starts: JobStarts
    keeper: Keeper
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
    placement: PlacementRooms,
    tell: Tell,
    clock: Clock,
    rng: Random,
) -> JobRooms:
    """Nothing is started yet."""
    scheduler = StoreScheduler(store.fires, store.jobs, clock)
    data, folder = Path(settings.data).absolute(), Path(settings.jobs.folder or ".").absolute()
    jobs = settings.jobs
    egress = EgressPolicy.of(settings.egress, centers=[settings.center.port])
    ceiling = Ceiling.of(settings.agent)
    boxes = Boxes(egress, clock, jobs.generator_processes, jobs.code, ceiling)
    limits = job_limits(settings)
    sources = Sources(boxes, folder, os.environ, limits, clock)
    restart = Backoff(first=jobs.restart_first, cap=jobs.restart_cap)
    feeder = Feeder(store, intake, archive, sources, clock, rng, restart)
    starts = JobStarts(name, store, intake, feeder, clock, rng)
    packer = Packer(store, folder, jobs.package_bytes, GitPacker(egress, os.environ), clock)
    places = Places(store, placement.roster, placement.placer, placement.allocator, clock, rng)
    apps = AppKeeper(jobs, store, intake, places, packer, tell, clock)
    deliverer = Deliverer(name, jobs, store, data, limits, clock, rng)
    keeper = Keeper(
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
    trials = Trials(sources, validator, clock)
    book = JobBook(store, checker, scheduler, clock, trials, jobs.test_seconds)

    def agents_wait() -> float:
        return max(settings.center.allocate_wait, placement.roster.judges_in)

    async def warn(detail: str) -> None:
        log.warning("%s", detail)
        await store.alerts.raise_("clock_set_back", name, detail, clock.now())

    firing = Firing(store.fires, starts, clock, name, agents_wait=agents_wait, warn=warn)
    return JobRooms(book, starts, keeper, scheduler, firing, feeder, deliverer)
