"""A center: open, serve, close. Assembles store, bus, archive and API.

`Center` is an explicit object; one process can hold several. It never decides anything
about order, retries or placement: lower rooms do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from random import Random

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, WebSocketRoute

from skep.archive.ports import Archive, SetAside
from skep.archive.registry import login_of, open_archive
from skep.bus.ports import Bus
from skep.bus.registry import open_bus
from skep.center.agent_socket import commands_socket
from skep.center.api import (
    agents,
    apps,
    center,
    deliveries,
    dispatches,
    driver,
    failures,
    generators,
    health,
    hosts,
    job_switch,
    jobs,
    operations,
    placement,
    queue,
    requests,
    requests_by_filter,
    runs,
    schedules,
    storage,
    tokens,
    why,
)
from skep.center.api.agent_protocol import apps as node_apps
from skep.center.api.agent_protocol import joining, work
from skep.center.api.agent_protocol import logs as node_logs
from skep.center.api.monitoring import alerts as alert_rules
from skep.center.api.monitoring import events, failure_groups, logs, series
from skep.center.api.people import audit, login, secrets, users, views
from skep.center.foundation import Foundation
from skep.center.http import docs_page
from skep.center.http.asgi import fixed_paths, no_such_route, routes
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Raw
from skep.center.http.fast_path import FastPath
from skep.center.http.openapi import describe
from skep.center.http.origin_check import App, OriginCheck
from skep.center.http.path_prefix import Prefix, host_of, root_of
from skep.center.loops import Loops
from skep.center.open_backends import Opening
from skep.center.services import Services, build
from skep.lanes.dispatch import lane_limits
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.store.open_store import open_store
from skep.store.ports import Store
from skep.wire.api.health import GET_DOCS, GET_OPENAPI

log = logging.getLogger(__name__)

#: Number of segments that an alert names.
NAMED = 5


def api_table() -> tuple[Endpoint, ...]:
    """Every route of the API, including its description."""
    described: list[Endpoint] = []

    @cache
    def document(public_url: str) -> bytes:
        return msgspec.json.encode(describe(described, public_url))

    async def openapi(call: Call) -> Raw:
        public_url = call.services.settings.center.public_url
        return Raw(await asyncio.to_thread(document, public_url), "application/json")

    @cache
    def page_of(public_url: str) -> bytes:
        return docs_page.render(msgspec.json.decode(document(public_url)))

    async def docs(call: Call) -> Raw:
        content = await asyncio.to_thread(page_of, call.services.settings.center.public_url)
        policy = {"content-security-policy": docs_page.POLICY}
        return Raw(content, docs_page.MEDIA, policy)

    page = Endpoint(GET_OPENAPI, Role.PUBLIC, openapi, "This description", tag="health")
    html = Endpoint(GET_DOCS, Role.PUBLIC, docs, "This description as a page", tag="health")
    described += [
        *health.ENDPOINTS,
        page,
        html,
        *work.ENDPOINTS,
        *node_apps.ENDPOINTS,
        *node_logs.ENDPOINTS,
        *joining.ENDPOINTS,
        *queue.ENDPOINTS,
        *driver.ENDPOINTS,
        *runs.ENDPOINTS,
        *deliveries.ENDPOINTS,
        *generators.ENDPOINTS,
        *apps.ENDPOINTS,
        *job_switch.ENDPOINTS,
        *jobs.ENDPOINTS,
        *schedules.ENDPOINTS,
        *requests.ENDPOINTS,
        *requests_by_filter.ENDPOINTS,
        *failures.ENDPOINTS,
        *operations.ENDPOINTS,
        *storage.ENDPOINTS,
        *dispatches.ENDPOINTS,
        *views.ENDPOINTS,
        *center.ENDPOINTS,
        *agents.ENDPOINTS,
        *tokens.ENDPOINTS,
        *secrets.ENDPOINTS,
        *login.ENDPOINTS,
        *users.ENDPOINTS,
        *audit.ENDPOINTS,
        *hosts.ENDPOINTS,
        *placement.ENDPOINTS,
        *why.ENDPOINTS,
        *logs.ENDPOINTS,
        *series.ENDPOINTS,
        *alert_rules.ENDPOINTS,
        *failure_groups.ENDPOINTS,
        *events.ENDPOINTS,
    ]
    return tuple(described)


class Center:
    """One center on its store, bus and archive."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        store: Store,
        bus: Bus,
        archive: Archive,
        clock: Clock,
        rng: Random,
        more_routes: Sequence[BaseRoute] = (),
    ) -> None:
        """`more_routes` are tried after those of the API; the center does not know what they do."""
        base = Foundation(name, settings, store, bus, archive, clock, rng)
        self.services: Services = build(base)
        self._loops = Loops(self.services)
        self._opened = AsyncExitStack()
        public = settings.center.public_url
        table = api_table()
        inner = Prefix(
            FastPath(self._starlette(table, more_routes), fixed_paths(self.services, table)),
            root_of(public),
        )
        self.app: App = OriginCheck(inner, settings.center.host, host_of(public))

    @classmethod
    def from_settings(
        cls,
        name: str,
        settings: Settings,
        clock: Clock,
        rng: Random,
        more_routes: Sequence[BaseRoute] = (),
    ) -> Center:
        """Choose store, bus and archive by their URLs; raises ConfigurationError."""
        store = open_store(settings.store_url, settings.store)
        bus = open_bus(settings.bus.url, lane_limits(settings.lanes))
        archive = open_archive(
            settings.archive_url,
            name,
            settings.archive.segment_bytes,
            home=Path(settings.data),
            login=login_of(settings),
        )
        return cls(name, settings, store, bus, archive, clock, rng, more_routes)

    def _starlette(self, table: Sequence[Endpoint], more: Sequence[BaseRoute]) -> Starlette:
        socket = WebSocketRoute("/node/commands", commands_socket(self.services))
        app = Starlette(
            routes=[*routes(self.services, table), socket, *more],
            exception_handlers={HTTPException: no_such_route(self.services)},
        )
        # An empty name is an error to report, not a path to the list of all resources.
        app.router.redirect_slashes = False
        return app

    async def open(self) -> None:
        """Open all parts in the order of their dependencies. Waits for servers that are starting;
        after an error nothing stays open."""
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        log.info("center %s is open on %s", self.services.name, self.services.store.describe())

    async def _open(self) -> None:
        services, closing = self.services, self._opened
        start = Opening(services.settings.center.start_wait, services.clock, services.rng)
        closing.push_async_callback(services.store.close)
        await start.ready("store", services.store.open)
        closing.push_async_callback(services.archive.close)
        await start.ready("archive", self._open_archive)
        closing.push_async_callback(services.bus.close)
        await start.ready("bus", services.bus.open)
        await start.ready("store", self._reconcile)
        closing.push_async_callback(services.logs.close)
        closing.push_async_callback(services.monitoring.monitor.stop)
        closing.push_async_callback(services.jobs.deliverer.stop)
        closing.push_async_callback(services.jobs.supervisor.stop)
        closing.push_async_callback(services.people.audit.close)
        closing.push_async_callback(services.operations.worker.stop)
        closing.push_async_callback(self._loops.stop)
        self._loops.start()

    async def _open_archive(self) -> None:
        services = self.services
        lenient = services.settings.archive.allow_empty_store
        empty = not lenient and not await services.store.runs.recent(1)
        committed_end = services.store.segments.committed_end
        unknown = await services.archive.open(committed_end, store_is_empty=empty)
        if unknown:
            await self._tell_unknown(unknown)

    async def _tell_unknown(self, unknown: Sequence[SetAside]) -> None:
        """Raise an alert: the archive has bytes that the store does not know because the store lost
        rows, or because the last process was killed between the two writes."""
        services = self.services
        size = sum(found.size for found in unknown)
        names = ", ".join(found.segment for found in unknown[:NAMED])
        more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
        detail = (
            f"the store does not know {size} archived bytes; they are in {names}{more}. "
            "If the store was damaged or replaced, stop the center and run `skep archive rebuild`"
        )
        log.error("%s", detail)
        now = services.clock.now()
        await services.store.alerts.raise_("archive_unknown", services.name, detail, now)

    async def _reconcile(self) -> None:
        await self.services.dispatcher.reconcile()

    def release(self) -> None:
        """Answer all long polls now, so that the server can stop."""
        self.services.closing.set()
        self.services.signals.work.wake_all()
        self.services.signals.pages.notify()
        self.services.live.hub.stop()

    async def close(self) -> None:
        """Close all parts in reverse order; acknowledged data is on disk already. May be called
        twice."""
        self.release()
        await self._opened.aclose()
