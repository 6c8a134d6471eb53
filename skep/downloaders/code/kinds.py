"""The kinds `python` and `shell`. One downloader per run, so one set of children per run.

An agent offers them only if the operator allows it; see `registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from skep.archive.frames import FrameMaker
from skep.downloaders.code.children import ChildrenOptions, CodeDownloader
from skep.downloaders.code.isolation import Isolation
from skep.downloaders.code.limit_ceiling import Ceiling
from skep.downloaders.egress_policy import EgressPolicy
from skep.errors import InvalidInput
from skep.model.downloader_kinds import DownloaderKind
from skep.model.run import RunSettings
from skep.runtime.clock import Clock
from skep.settings import AgentSettings


class CodeKind:
    """Starts the children of a run when its first request arrives."""

    def __init__(
        self,
        traits: DownloaderKind,
        clock: Clock,
        rng: Random,
        egress: EgressPolicy,
        isolation: Isolation,
        settings: AgentSettings,
        wrote: Callable[[str, str], None] = lambda _run, _text: None,
    ) -> None:
        """`wrote` gets what the code of a run writes to stderr: (run, text)."""
        self._wrote = wrote
        self.traits = traits
        self.name = traits.name
        self.schemes = traits.schemes
        self._clock = clock
        self._rng = rng
        self._egress = egress
        self._isolation = isolation
        self._settings = settings

    def open(self, run: str, settings: RunSettings) -> CodeDownloader:
        if settings.code is None:
            raise InvalidInput(f"run {run} has no code for its {self.name} downloader")
        rng = Random(self._rng.getrandbits(128))  # noqa: S311 - record ids, not secrets
        options = ChildrenOptions(
            kind=self.name,
            clock=self._clock,
            egress=self._egress.naming(settings.named),
            isolation=self._isolation,
            workers=self._settings.code_workers,
            network=self._settings.code_network,
            ceiling=Ceiling.of(self._settings),
            keep=FrameMaker(self._clock, rng).exchange_frames,
            wrote=partial(self._wrote, run),
        )
        return CodeDownloader(settings, settings.code, options)
