"""Plug-in kinds: installed packages that claim URI schemes, found by entry points.

A package names a class in the group `skep.downloaders`; the class has `name` and `schemes`, and
`traits` (`skep.model.downloader_kinds`) if it can do more. It is created with a `PlugIn` and opens
downloaders like any kind. A request goes to the kind that claims its scheme, whatever downloader
its run has; all other requests go to the downloader of the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from random import Random
from typing import Any, Protocol

from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpKind
from skep.downloaders.ports import Downloader, Fetched, Kind, Paced, Recallable
from skep.downloaders.refused_kind import RefusedKind, Refusing
from skep.model.downloader_kinds import BUILT_IN, BUILT_IN_SCHEMES, GROUP, kind_names
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import Clock
from skep.runtime.plug_ins import loaded, points

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlugIn:
    """The arguments of a plug-in. `http` opens downloaders that it may use."""

    clock: Clock
    rng: Random
    egress: EgressPolicy
    http: HttpKind


class PlugInKind(Protocol):
    """The class that an entry point names."""

    name: str
    schemes: tuple[str, ...]

    def __call__(self, plug_in: PlugIn) -> Kind:
        """Create the kind."""


def known_kinds() -> tuple[str, ...]:
    """Every known kind: built-in ones, and those of installed packages."""
    return kind_names()


def known_schemes() -> tuple[str, ...]:
    """Every known scheme: those of built-in kinds, and those of installed packages."""
    added = (scheme for _, found in _load() if found for scheme in found.schemes)
    return (*BUILT_IN_SCHEMES, *added)


def plug_ins(given: PlugIn) -> Iterator[Kind]:
    """Every installed plug-in; one that does not work is a refused kind with the reason."""
    for point, found in _load():
        reason = f"cannot load the plug-in {point.name!r} ({point.value})"
        if found is None:
            yield RefusedKind(point.name, f"{reason}; see the agent's log")
            continue
        try:
            yield found(given)
        except Exception as error:
            log.exception("%s", reason)
            yield RefusedKind(point.name, f"{reason}: {error}")


def _load() -> Iterator[tuple[EntryPoint, PlugInKind | None]]:
    own, found = {kind.name for kind in BUILT_IN}, loaded(GROUP)
    for point in points(GROUP):
        if point.name not in own:
            yield point, _usable(point, found[point.name])


def _usable(point: EntryPoint, found: Any) -> PlugInKind | None:
    """None for a class that could not be loaded or claims what it must not."""
    if found is None:
        return None
    name, schemes = getattr(found, "name", ""), getattr(found, "schemes", ())
    taken = set(schemes).intersection(BUILT_IN_SCHEMES)
    if taken or name != point.name:
        log.error("plug-in %s: its name is %r, or it claims %s", point.name, name, sorted(taken))
        return None
    kind: PlugInKind = found
    return kind


class RoutedKind:
    """A kind whose runs also accept the schemes of plug-ins."""

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
            return Refusing(f"cannot open the plug-in for {scheme}://: {error}")


class Routed:
    """The downloaders of one run, by scheme; plug-ins are opened on demand."""

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
