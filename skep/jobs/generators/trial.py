"""A generator tried out: its first URIs, its errors, nothing stored.

Run by centers before a job with code is kept, and by `skep generator test`. It uses the box
and the limits of a real run, and ends the generator as soon as it has seen enough.
"""

from __future__ import annotations

from contextlib import aclosing

import msgspec

from skep.errors import SkepError
from skep.jobs.definitions.struct_decoding import DocumentProblem
from skep.jobs.generators.generator_contract import (
    Batches,
    GeneratorCrashed,
    GeneratorFailed,
    Raw,
    request_of,
    settled,
)
from skep.jobs.generators.sources import Sources
from skep.jobs.request_validation import PLAIN, Validator
from skep.model.jobs.job import Generator, Job
from skep.model.request import NewRequest, Offered
from skep.runtime.clock import Clock

BAD_SHOWN = 5


class Trial(msgspec.Struct):
    """What came of it."""

    name: str
    kind: str
    #: The first ones, as requests.
    requests: list[NewRequest]
    #: How many came before it was ended.
    yielded: int = 0
    #: Whether it ended by itself.
    whole: bool = False
    seconds: float = 0.0
    bad: list[str] = msgspec.field(default_factory=list)
    #: Why it failed; "" when it did not.
    error: str = ""


class GeneratorTrials:
    """Tries generators out. `sources` opens them, `validator` judges what they yield."""

    def __init__(self, sources: Sources, validator: Validator, clock: Clock) -> None:
        self._sources = sources
        self._validator = validator
        self._clock = clock

    async def faults(
        self, job: Job, known: Job | None, seconds: float, count: int
    ) -> list[DocumentProblem]:
        """What is wrong with generators whose code is new or has changed."""
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
        batches: Batches | None = None,
        kind: str = PLAIN,
    ) -> Trial:
        """Until it has yielded `count`, has ended, or `seconds` are over; `kind` is that of
        the downloader for what it yields."""
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
        except (GeneratorFailed, GeneratorCrashed) as error:
            late = "took longer" in str(error) and trial.yielded
            # One that has shown that it works may take its time.
            trial.error = "" if late else str(error)
        trial.seconds = round(self._clock.monotonic() - began, 3)
        return trial

    async def _read(
        self, batches: Batches, generator: Generator, count: int, trial: Trial, kind: str
    ) -> bool:
        async for batch in batches:
            for raw in batch:
                self._note(raw, generator, count, trial, kind)
            if trial.yielded >= count:
                return False
        return True

    def _note(self, raw: Raw, generator: Generator, count: int, trial: Trial, kind: str) -> None:
        trial.yielded += 1
        try:
            offered: Offered = settled(request_of(raw), generator, 0, trial.yielded)
            self._validator.rows([offered], 0, 0.0, kind)
        except SkepError as error:
            if len(trial.bad) < BAD_SHOWN:
                trial.bad.append(error.detail.removeprefix("request 0: "))
            return
        if len(trial.requests) < count:
            trial.requests.append(NewRequest(offered) if isinstance(offered, str) else offered)


def _only_bad(trial: Trial) -> str:
    """Some bad ones may be; nothing but bad ones is a mistake."""
    if trial.bad and not trial.requests:
        return f"none of {trial.yielded} is valid: {trial.bad[0]}"
    return ""
