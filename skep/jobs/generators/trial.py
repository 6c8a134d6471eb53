"""Tries a generator out: its first URIs and its errors; nothing is stored.

Run by centers before a job with code is stored, and by `skep generator test`. It uses the sandbox
and the limits of a real run, and ends the generator after enough URIs.
"""

from __future__ import annotations

from contextlib import aclosing

import msgspec

from skep.errors import SkepError
from skep.jobs.definitions.struct_decoding import DocumentProblem
from skep.jobs.generators import generator_contract as contract
from skep.jobs.generators.sources import Sources
from skep.jobs.request_validation import PLAIN, Validator
from skep.model.jobs.job import Generator, Job
from skep.model.request import NewRequest, Offered
from skep.runtime.clock import Clock

BAD_SHOWN = 5


class Trial(msgspec.Struct):
    """The result of a trial."""

    name: str
    kind: str
    #: The first requests.
    requests: list[NewRequest]
    #: Number of entries before it was ended.
    yielded: int = 0
    #: Whether the generator ended by itself.
    whole: bool = False
    seconds: float = 0.0
    bad: list[str] = msgspec.field(default_factory=list)
    #: Why it failed; "" = it did not.
    error: str = ""


class GeneratorTrials:
    """Tries generators out. `sources` opens them, `validator` checks their requests."""

    def __init__(self, sources: Sources, validator: Validator, clock: Clock) -> None:
        self._sources = sources
        self._validator = validator
        self._clock = clock

    async def problems(
        self, job: Job, known: Job | None, seconds: float, count: int
    ) -> list[DocumentProblem]:
        """Problems of generators with new or changed code."""
        before = known.generators if known is not None else ()
        found: list[DocumentProblem] = []
        for place, generator in enumerate(job.generators):
            if generator.traits.language is not None and generator not in before:
                trial = await self.run(generator, seconds, count, kind=job.downloader.kind)
                problem = trial.error or _only_bad(trial)
                if problem:
                    found.append(
                        DocumentProblem(f"generators[{place}].code", f"its test failed: {problem}")
                    )
        return found

    async def run(
        self,
        generator: Generator,
        seconds: float,
        count: int,
        batches: contract.Batches | None = None,
        kind: str = PLAIN,
    ) -> Trial:
        """Read until `count` entries, its end, or `seconds`; `kind` is the downloader of the
        requests."""
        limits = msgspec.structs.replace(
            generator.limits, time=min(seconds, generator.limits.time or seconds)
        )
        short = msgspec.structs.replace(generator, limits=limits)
        trial = Trial(generator.name, generator.kind, [])
        began = self._clock.monotonic()
        try:
            reading = batches or self._sources.open(short)
            async with aclosing(reading):
                trial.whole = await self._read(reading, generator, count, trial, kind)
        except (contract.GeneratorFailed, contract.GeneratorCrashed) as error:
            late = "took longer" in str(error) and trial.yielded
            # A generator that has produced something may be slow.
            trial.error = "" if late else str(error)
        trial.seconds = round(self._clock.monotonic() - began, 3)
        return trial

    async def _read(
        self, batches: contract.Batches, generator: Generator, count: int, trial: Trial, kind: str
    ) -> bool:
        async for batch in batches:
            for raw in batch:
                self._note(raw, generator, count, trial, kind)
            if trial.yielded >= count:
                return False
        return True

    def _note(
        self, raw: contract.Raw, generator: Generator, count: int, trial: Trial, kind: str
    ) -> None:
        trial.yielded += 1
        try:
            offered: Offered = contract.settled(
                contract.request_of(raw), generator, 0, trial.yielded
            )
            self._validator.rows([offered], 0, 0.0, kind)
        except SkepError as error:
            if len(trial.bad) < BAD_SHOWN:
                trial.bad.append(error.detail.removeprefix("request 0: "))
            return
        if len(trial.requests) < count:
            trial.requests.append(NewRequest(offered) if isinstance(offered, str) else offered)


def _only_bad(trial: Trial) -> str:
    """The problem when all entries are invalid; some invalid ones are allowed."""
    if trial.bad and not trial.requests:
        return f"none of {trial.yielded} URIs is valid: {trial.bad[0]}"
    return ""
