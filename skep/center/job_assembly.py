"""Assembles the parts of the job system for one center.

Run once when a center is built. Parts get what they need as arguments; nothing starts here.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from skep.access.audit import AuditTrail
from skep.access.stored_secrets import StoredSecrets
from skep.center.agent_commands import Hub
from skep.center.assembly.audited_starts import AuditedStarts
from skep.center.assembly.logs import LogAssembly
from skep.center.foundation import Foundation
from skep.center.http.authentication import Auth, DriverPasses
from skep.center.placement_assembly import PlacementAssembly
from skep.downloaders.code.limit_ceiling import Ceiling
from skep.downloaders.egress_policy import EgressPolicy
from skep.jobs.apps.agent_choice import AgentChoice
from skep.jobs.apps.app_supervisor import AppSupervisor
from skep.jobs.apps.git_checkout import GitPacker
from skep.jobs.apps.packing import Packer
from skep.jobs.apps.secrets import AppSecrets
from skep.jobs.context import JobContext
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
from skep.jobs.runs.run_control import RunControl
from skep.jobs.runs.run_start import RunStarts
from skep.jobs.runs.run_supervisor import RunLinks, RunSupervisor, RunWorkers
from skep.jobs.runs.run_wake_ups import RunWakeUps
from skep.jobs.runs.spider_process import Spawner
from skep.jobs.schedule.firing import Firing
from skep.jobs.schedule.plans import StoreScheduler
from skep.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobAssembly:
    """Definitions, schedules, run starts, and the supervisors of runs."""

    book: JobRepository
    starts: RunStarts
    supervisor: RunSupervisor
    scheduler: StoreScheduler
    firing: Firing
    feeder: Feeder
    deliverer: Deliverer


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """Other parts of the center that jobs use."""

    validator: Validator
    intake: Intake
    auth: Auth
    audit: AuditTrail
    placement: PlacementAssembly
    hub: Hub
    control: RunControl
    logs: LogAssembly
    secrets: StoredSecrets


def build_jobs(base: Foundation, needs: JobNeeds, wake_ups: RunWakeUps) -> JobAssembly:
    """Build all parts; nothing is started."""
    settings, store, clock = base.settings, base.store, base.clock
    wrote = needs.logs.wrote
    context = JobContext(base.name, settings.jobs, store, needs.intake, clock, base.rng, wrote)
    scheduler = StoreScheduler(store.fires, store.jobs, clock)
    sources = _sources(base)
    feeder = Feeder(context, base.archive, sources)
    starts = RunStarts(context, feeder, partial(_agents_wait, base, needs.placement))
    deliverer = _deliverer(base)
    workers = RunWorkers(
        starts,
        feeder,
        Spawner(_folder(settings), _data(settings), os.environ, settings.jobs.code),
        DriverPasses(needs.auth, store),
        _apps(base, context, needs),
        deliverer,
        scheduler,
        needs.logs.feeds,
    )
    links = RunLinks(wake_ups, needs.control.acknowledged, base.address.get)
    return JobAssembly(
        _repository(base, needs, sources, scheduler),
        starts,
        RunSupervisor(context, workers, links),
        scheduler,
        _firing(base, AuditedStarts(starts, needs.audit, clock), needs.placement),
        feeder,
        deliverer,
    )


def _folder(settings: Settings) -> Path:
    return Path(settings.jobs.folder or ".").absolute()


def _data(settings: Settings) -> Path:
    return Path(settings.data).absolute()


def _egress(settings: Settings) -> EgressPolicy:
    return EgressPolicy.of(settings.egress, centers=[settings.center.port])


def _sources(base: Foundation) -> Sources:
    settings, jobs = base.settings, base.settings.jobs
    ceiling = Ceiling.of(settings.agent)
    boxes = CodeSandboxes(
        _egress(settings), base.clock, jobs.generator_processes, jobs.code, ceiling
    )
    return Sources(boxes, _folder(settings), os.environ, job_limits(settings), base.clock)


def _deliverer(base: Foundation) -> Deliverer:
    settings = base.settings
    limits, data = job_limits(settings), _data(settings)
    return Deliverer(base.name, settings.jobs, base.store, data, limits, base.clock, base.rng)


def _apps(base: Foundation, context: JobContext, needs: JobNeeds) -> AppSupervisor:
    settings, store, clock = base.settings, base.store, base.clock
    git = GitPacker(_egress(settings), os.environ)
    packer = Packer(store, _folder(settings), settings.jobs.package_bytes, git, clock)
    chosen = needs.placement
    places = AgentChoice(chosen.parts)
    return AppSupervisor(context, places, packer, needs.hub.send)


def _repository(
    base: Foundation, needs: JobNeeds, sources: Sources, scheduler: StoreScheduler
) -> JobRepository:
    settings, clock, validator = base.settings, base.clock, needs.validator
    stored = partial(needs.secrets.read, use="apps")
    kinds, secrets = (
        sorted(validator.downloaders),
        AppSecrets.of(settings, warn=True, stored=stored),
    )
    checker = Checker(validator, kinds, _folder(settings), secrets, job_limits(settings))
    trials = GeneratorTrials(sources, validator, clock)
    seconds = settings.jobs.test_seconds
    return JobRepository(base.store, checker, scheduler, clock, trials, seconds)


def _agents_wait(base: Foundation, placement: PlacementAssembly) -> float:
    """Seconds from now that a due or started run waits for its agents."""
    return max(base.settings.center.allocate_wait, placement.roster.judges_in)


def _firing(base: Foundation, starts: AuditedStarts, placement: PlacementAssembly) -> Firing:
    store, clock, name = base.store, base.clock, base.name

    async def warn(detail: str) -> None:
        log.warning("%s", detail)
        await store.alerts.raise_("clock_set_back", name, detail, clock.now())

    agents_wait = partial(_agents_wait, base, placement)
    return Firing(store.fires, starts, clock, name, agents_wait=agents_wait, warn=warn)
