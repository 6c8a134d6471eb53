"""Assembles live updates: what can be watched, and how it is read.

Run once when a center is built. Nothing starts here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from skep.center.center_signals import CenterSignals
from skep.center.foundation import Foundation
from skep.center.metrics import Metrics
from skep.errors import InvalidInput
from skep.model.filter.scoped import within
from skep.model.live import LiveRow
from skep.model.operations import Operation
from skep.model.people.scope import Scope
from skep.monitoring.live.hub import LiveHub, StreamLimits
from skep.monitoring.live.watches import Read, WatchKind, WatchKinds
from skep.operations.acts import Registry, Resource
from skep.wire.api.operations import view_of
from skep.wire.filter.tables import AGENTS, JOBS, REQUESTS, RUNS

#: Rows of a list that is watched.
ROWS = 100
#: Resource, and how one object of it is watched: its name and the field of its key.
_LISTS = (
    (Resource("requests", REQUESTS), "request", "id"),
    (Resource("failures", REQUESTS, "state:dead"), "", ""),
    (Resource("runs", RUNS), "run", "id"),
    (Resource("jobs", JOBS, "-state:deleted"), "job", "name"),
    (Resource("agents", AGENTS), "agent", "id"),
)


@dataclass(frozen=True, slots=True)
class LiveAssembly:
    """The streams of a center, and how many there may be."""

    hub: LiveHub
    limits: StreamLimits


def build_live(
    base: Foundation, signals: CenterSignals, closing: asyncio.Event, metrics: Metrics
) -> LiveAssembly:
    """Build all parts; nothing is started."""
    center = base.settings.center
    kinds = WatchKinds([*_list_kinds(base), *_operation_kinds(base)])
    hub = LiveHub(kinds, base.clock, signals.changes, closing, metrics.streams_cut.inc)
    limits = StreamLimits(center.streams, center.streams_per_address, metrics.streams.set)
    return LiveAssembly(hub, limits)


def _list_kinds(base: Foundation) -> list[WatchKind]:
    found: list[WatchKind] = []
    for resource, one, key in _LISTS:
        found.append(WatchKind(resource.name, _ReadList(base, resource)))
        if one:
            single = Resource(one, resource.table)
            found.append(WatchKind(one, _ReadList(base, single, key), needs_argument=True))
    return found


@dataclass(frozen=True, slots=True)
class _ReadList:
    """Reads the newest rows that match a filter; with `key`, the row of that key."""

    base: Foundation
    resource: Resource
    key: str = ""

    def __call__(self, argument: str, scope: Scope) -> Read:
        text = f'{self.key}:"{_quoted(argument)}"' if self.key else argument
        base, resource = self.base, self.resource
        resource.read(text, base.clock.now())  # raises InvalidFilter

        async def read() -> Sequence[LiveRow]:
            # Relative times of the filter count from each read.
            wanted = within(resource.read(text, base.clock.now()), scope)
            return await base.store.live.page(wanted, base.settings.center.alive_after, ROWS)

        return read


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _operation_kinds(base: Foundation) -> list[WatchKind]:
    known = Registry([resource for resource, _, _ in _LISTS], ())

    def open_list(argument: str, scope: Scope) -> Read:
        if argument:
            raise InvalidInput("operations cannot be filtered yet; watch `operations`")

        async def read() -> Sequence[LiveRow]:
            found = await base.store.operations.recent(ROWS)
            return [_operation(one, scope) for one in found if known.is_within(one, scope)]

        return read

    def open_one(argument: str, scope: Scope) -> Read:
        if not argument.isascii() or not argument.isdecimal() or len(argument) > 18:  # noqa: PLR2004
            raise InvalidInput(f"{argument[:50]!r} is not the number of an operation")

        async def read() -> Sequence[LiveRow]:
            found = await base.store.operations.recent(1, int(argument) + 1)
            its = [one for one in found if one.id == int(argument)]
            return [_operation(one, scope) for one in its if known.is_within(one, scope)]

        return read

    return [
        WatchKind("operations", open_list),
        WatchKind("operation", open_one, needs_argument=True),
    ]


def _operation(one: Operation, scope: Scope) -> LiveRow:
    view = view_of(one, with_causes=not scope)
    return LiveRow(str(one.id), msgspec.to_builtins(view))
