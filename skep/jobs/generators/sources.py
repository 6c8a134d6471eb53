"""Opens the source of a generator by its kind. Centers, and `skep generator test`.

The center reads lists and files; code runs in a sandbox; agents fetch sitemaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from skep.downloaders.code.inside.generate import ITEM_BYTES
from skep.jobs.definitions.jobs_folder import inside
from skep.jobs.generators.code_sandbox import CodeSandboxes, SandboxRequest
from skep.jobs.generators.generator_contract import BATCH, Batches, GeneratorFailed, Raw
from skep.jobs.generators.sql_source import SqlSource
from skep.model.jobs.generator_kinds import FILE, LIST, SQL
from skep.model.jobs.job import Generator
from skep.runtime.clock import Clock
from skep.streams.host_rules import JobLimits


class Sources:
    """Opens every kind except sitemaps."""

    def __init__(
        self,
        boxes: CodeSandboxes,
        folder: Path,
        environment: Mapping[str, str],
        limits: JobLimits,
        clock: Clock,
    ) -> None:
        self.boxes = boxes
        self._limits = limits
        self._folder = folder
        self._environment = environment
        self._clock = clock
        #: Kinds without code, other than sitemaps.
        self._openers: dict[str, Callable[[Generator], Batches]] = {
            LIST.name: _listed,
            FILE.name: self._file,
            SQL.name: self._query,
        }

    def open(self, generator: Generator, wrote: Callable[[str], None] = lambda _: None) -> Batches:
        """Its batches; raises GeneratorFailed and GeneratorCrashed when they are read. `wrote`
        gets what its code writes."""
        if generator.traits.language is not None:
            return self.boxes.run(sandbox_request_of(generator), wrote)
        return self._openers[generator.kind](generator)

    def _query(self, generator: Generator) -> Batches:
        known = self._environment, self._limits
        return SqlSource(generator, self._folder, *known, self._clock).batches()

    async def _file(self, generator: Generator) -> Batches:
        lines = _lines(self._folder, generator.path)
        while batch := await asyncio.to_thread(lambda: list(islice(lines, BATCH))):
            yield batch


def sandbox_request_of(generator: Generator) -> SandboxRequest:
    return SandboxRequest(
        generator.kind,
        generator.code,
        generator.arguments,
        generator.limits,
        generator.network,
    )


async def _listed(generator: Generator) -> Batches:
    for start in range(0, len(generator.uris), BATCH):
        part = generator.uris[start : start + BATCH]
        yield [one if isinstance(one, str) else _fields(one) for one in part]


def _fields(request: msgspec.Struct) -> dict[str, object]:
    return {name: getattr(request, name) for name in request.__struct_fields__}


def _lines(folder: Path, name: str) -> Iterator[Raw]:
    """One URI or one JSON object per line; `#` starts a comment."""
    try:
        with inside(folder, name).open("rb") as file:
            while line := file.readline(ITEM_BYTES + 1):
                if len(line) > ITEM_BYTES:
                    raise GeneratorFailed(f"{name!r} has a line of more than {ITEM_BYTES} bytes")
                text = line.decode("utf-8", "replace").strip()
                if text and not text.startswith("#"):
                    yield text
    except (OSError, ValueError) as error:
        raise GeneratorFailed(f"cannot read {name!r} in the folder for jobs: {error}") from error
