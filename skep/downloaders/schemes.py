"""Plug-in kinds: other people's packages that claim URI schemes, found by entry points.

A package names a class under `skep.downloaders`; the class has `name` and `schemes`, is
made with a `PlugIn` and opens downloaders like any kind. A request goes to whoever claims
its scheme, whatever downloader its run has; all others go to the run's own.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from random import Random
from typing import Protocol

from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpKind
from skep.downloaders.ports import Downloader, Fetched, Kind, Paced, Recallable
from skep.downloaders.refused_kind import RefusedKind, Refusing
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import Clock

log = logging.getLogger(__name__)

GROUP = "skep.downloaders"
#: Kinds that come with Skep, and the schemes that `http` and `curl` take.
BUILT_IN = ("http", "curl", "python", "shell")
_TAKEN_SCHEMES = frozenset({"http", "https"})


@dataclass(frozen=True, slots=True)
class PlugIn:
    """What a plug-in is given. `http` opens downloaders that it may build upon."""

    clock: Clock
    rng: Random
    egress: EgressPolicy
    http: HttpKind


class PlugInKind(Protocol):
    """What an entry point leads to: a class."""

    name: str
    schemes: tuple[str, ...]

    def __call__(self, plug_in: PlugIn) -> Kind:
        """Make the kind."""


def known_kinds() -> tuple[str, ...]:
    """Every kind that can be named here: ours, and those of installed packages."""
    return (*BUILT_IN, *(point.name for point in _points()))


def known_schemes() -> tuple[str, ...]:
    """The schemes that installed packages claim."""
    return tuple(scheme for _, found in _load() if found for scheme in found.schemes)


def plug_ins(given: PlugIn) -> Iterator[Kind]:
    """Every installed plug-in; one that does not work is a kind that says so."""
    for point, found in _load():
        reason = f"the plug-in {point.name!r} ({point.value}) could not be loaded"
        if found is None:
            yield RefusedKind(point.name, f"{reason}; the agent's log says why")
            continue
        try:
            yield found(given)
        except Exception as error:
            log.exception("%s", reason)
            yield RefusedKind(point.name, f"{reason}: {error}")


def _points() -> tuple[EntryPoint, ...]:
    return _points_along(tuple(sys.path))


@lru_cache(maxsize=1)
def _points_along(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Looked for once: it reads a file of every installed package, and a process that starts
    asks several times."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    return tuple(point for name, point in sorted(found.items()) if name not in BUILT_IN)


def _load() -> Iterator[tuple[EntryPoint, PlugInKind | None]]:
    for point in _points():
        try:
            found = point.load()
            taken = _TAKEN_SCHEMES.intersection(found.schemes)
            if taken or found.name != point.name:
                log.error("plug-in %s: its name differs, or it claims %s", point.name, taken)
                found = None
        except Exception:
            log.exception("plug-in %s cannot be loaded", point.name)
            found = None
        yield point, found


class RoutedKind:
    """A kind whose runs also take the schemes of plug-ins."""

    def __init__(self, kind: Kind, claims: Mapping[str, Kind]) -> None:
        self.name = kind.name
        self.schemes = (*kind.schemes, *claims)
        self._kind = kind
        self._claims = claims

    def open(self, run: str, settings: RunSettings) -> Routed:
        own = self._kind.open(run, settings)
        return Routed(own, lambda scheme: self._claim(scheme, run, settings))

    def _claim(self, scheme: str, run: str, settings: RunSettings) -> Downloader | None:
        kind = self._claims.get(scheme)
        if kind is None:
            return None
        try:
            return kind.open(run, settings)
        except Exception as error:
            log.exception("cannot open the plug-in for %s://", scheme)
            return Refusing(f"the plug-in for {scheme}:// could not be opened: {error}")


class Routed:
    """The downloaders of one run, by scheme; plug-ins are opened when they are needed."""

    def __init__(self, own: Downloader, claim: Callable[[str], Downloader | None]) -> None:
        self._own = own
        self._claim = claim
        self._by_scheme: dict[str, Downloader] = {}

    @property
    def active(self) -> int:
        return self._own.active + sum(one.active for one in self._others())

    def start(self, work: Work, done: Callable[[Fetched], None]) -> None:
        scheme = work.uri.partition(":")[0].lower()
        downloader = self._by_scheme.get(scheme)
        if downloader is None:
            downloader = self._by_scheme[scheme] = self._claim(scheme) or self._own
        downloader.start(work, done)

    def recall(self) -> None:
        for one in (self._own, *self._others()):
            if isinstance(one, Recallable):
                one.recall()

    def pace(self, site: str, spacing: float) -> None:
        if isinstance(self._own, Paced):
            self._own.pace(site, spacing)

    async def close(self) -> None:
        await asyncio.gather(self._own.close(), *(one.close() for one in self._others()))

    def _others(self) -> list[Downloader]:
        return [one for one in self._by_scheme.values() if one is not self._own]
