"""Runs generators for `skep generator test`. Nothing is stored.

Imported when the command runs; the code runs in the same sandbox as at a center.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

from skep.archive.records import FirstRecords, split_response
from skep.cli.commands.crawl.page_fetcher import Fetcher
from skep.cli.commands.jobs.job_files import read_files
from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.output import say, show, show_json
from skep.downloaders.code.limit_ceiling import Ceiling
from skep.downloaders.egress_policy import EgressPolicy
from skep.embed.center_address import CenterAddress
from skep.embed.embedded import with_loopback
from skep.errors import InvalidInput, InvalidJob
from skep.jobs.definitions.connection_limits import job_limits
from skep.jobs.definitions.job_check import KINDS, linter
from skep.jobs.generators.code_sandbox import CodeSandboxes
from skep.jobs.generators.generator_contract import Batches, Complaint, GeneratorFailed
from skep.jobs.generators.sitemap_source import READ_LIMIT, maps_settings, sitemap_request
from skep.jobs.generators.sources import Sources
from skep.jobs.generators.trial import GeneratorTrials, Trial
from skep.jobs.request_validation import Validator
from skep.model.downloader_kinds import BUILT_IN_SCHEMES
from skep.model.jobs.job import Generator, Job
from skep.runtime.clock import SystemClock
from skep.settings import Settings
from skep.spiders.authoring.request import Request


@dataclass(frozen=True, slots=True)
class GeneratorChoice:
    """The generators to test: of a file or a job, by name or number; "" means all."""

    source: str
    name: str
    #: URIs to show of each generator, and its time limit in seconds.
    count: int
    seconds: float
    #: The folder with their files.
    folder: Path


async def test_generators(reach: CenterAddress, wanted: GeneratorChoice, *, as_json: bool) -> int:
    """Show what each generator yields; return the exit code."""
    found = [
        (job, place, part)
        for job in await _jobs(reach, wanted.source)
        for place, part in enumerate(job.generators)
        if wanted.name in {"", part.name, str(place)}
    ]
    if not found:
        named = f" {wanted.name!r}" if wanted.name else ""
        raise InvalidInput(f"{wanted.source} has no generator{named}")
    settings, clock = with_loopback(reach.settings()), SystemClock()
    egress = EgressPolicy.of(settings.egress)
    boxes = CodeSandboxes(egress, clock, 1, settings.jobs.code, Ceiling.of(settings.agent))
    validator = Validator(BUILT_IN_SCHEMES, Random(0), KINDS)  # noqa: S311 - nothing secret
    limits = job_limits(settings)
    sources = Sources(boxes, wanted.folder, os.environ, limits, clock)
    trials = GeneratorTrials(sources, validator, clock)
    done: list[Trial] = []
    for job, place, part in found:
        maps = sitemap(settings, job, part, boxes) if part.traits.fetched else None
        trial = await trials.run(part, wanted.seconds, wanted.count, maps, job.downloader.kind)
        trial.name = part.name or f"{part.kind} {place}"
        done.append(trial)
        if not as_json:
            _show(trial)
    if as_json:
        show_json({"items": msgspec.to_builtins(done)})
    return ExitCode.FAILED if any(trial.error for trial in done) else ExitCode.OK


async def _jobs(reach: CenterAddress, source: str) -> Sequence[Job]:
    if (found := _read(Path(source))) is not None:
        return found
    async with connected(reach) as client:
        return [(await client.api.jobs.show(source)).kept.job]


def _read(file: Path) -> list[Job] | None:
    """None if the file does not exist."""
    if not file.is_file():
        return None
    jobs: list[Job] = []
    for document in read_files([file]):
        plain = document.data
        if isinstance(plain, dict):
            plain = {name: value for name, value in plain.items() if name != "revision"}
        job, faults = linter().judge(plain)
        if job is None:
            lines = "\n".join(f"{document.where}: {fault}" for fault in faults)
            raise InvalidJob(lines)
        jobs.append(job)
    return jobs


async def sitemap(settings: Settings, job: Job, part: Generator, boxes: CodeSandboxes) -> Batches:
    """The first pages of a sitemap, downloaded one by one, as an agent would."""
    ahead = [part.url]
    async with Fetcher(settings, maps_settings(job)) as fetcher:
        while ahead:
            url = ahead.pop(0)
            page = await fetcher.fetch(Request(url))
            if page.failure:
                raise GeneratorFailed(f"{url}: {page.failure}: {page.detail or page.status}")
            record = FirstRecords().read(page.frames, READ_LIMIT)
            body = bytes(split_response(record, READ_LIMIT).body)
            reading = boxes.run(sitemap_request(page.final_uri or url, body))
            async with aclosing(reading):
                try:
                    async for batch in reading:
                        ahead += [str(one["sitemap"]) for one in batch if isinstance(one, dict)]
                        yield [one for one in batch if isinstance(one, str)]
                except GeneratorFailed as error:
                    yield [Complaint(f"sitemap {url}: {error}")]


def _show(trial: Trial) -> None:
    for request in trial.requests:
        more = {
            name: value
            for name in ("method", "priority", "headers", "meta", "body")
            if (value := getattr(request, name)) not in ("GET", None, {}, b"")
        }
        show(f"{request.uri}{f'  {more}' if more else ''}")
    for bad in trial.bad:
        say(f"not valid: {bad}")
    ended = "complete" if trial.whole else "stopped early"
    if trial.error:
        say(f"{trial.name} failed after {trial.seconds:.2f} s: {trial.error}")
    else:
        say(f"{trial.name}: {trial.yielded} in {trial.seconds:.2f} s, {ended}; nothing was stored")
