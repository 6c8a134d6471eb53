"""The typed client of the public API: `api.runs.show("r1")` returns a `RunView`.

One object for each resource of `wire/api`, with a method for each of its routes. It works over
any transport, which decides how a call reaches a center and what happens when one fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from skep.errors import SkepError
from skep.wire import codec
from skep.wire.api.agents import AgentsClient
from skep.wire.api.apps import AppsClient
from skep.wire.api.caller import Download
from skep.wire.api.center import OverviewClient
from skep.wire.api.deliveries import DeliveriesClient
from skep.wire.api.dispatches import DispatchesClient
from skep.wire.api.driver import DriverClient
from skep.wire.api.failures import FailuresClient
from skep.wire.api.generators import GeneratorsClient
from skep.wire.api.health import GET_VERSION, HealthClient
from skep.wire.api.hosts import HostsClient
from skep.wire.api.jobs import JobsClient
from skep.wire.api.monitoring.alerts import AlertsClient
from skep.wire.api.monitoring.events import EventsClient
from skep.wire.api.monitoring.failure_groups import FailureGroupsClient
from skep.wire.api.monitoring.logs import LogsClient
from skep.wire.api.monitoring.series import SeriesClient
from skep.wire.api.operations import OperationsClient
from skep.wire.api.people.audit import AuditClient
from skep.wire.api.people.login import LoginClient
from skep.wire.api.people.secrets import SecretsClient
from skep.wire.api.people.users import UsersClient
from skep.wire.api.people.views import ViewsClient
from skep.wire.api.placement import PlacementClient
from skep.wire.api.queue import QueueClient
from skep.wire.api.requests import RequestsClient
from skep.wire.api.results import ResultsClient
from skep.wire.api.route import Route
from skep.wire.api.runs import RunsClient
from skep.wire.api.schedules import SchedulesClient
from skep.wire.api.storage import StorageClient
from skep.wire.api.tokens import TokensClient
from skep.wire.api.why import WhyClient
from skep.wire.client.sparse import set_fields, sparse
from skep.wire.client.transport import Request, Transport

G = TypeVar("G")


class CenterApi:
    """Every route of the public API, by resource."""

    def __init__(self, transport: Transport, seconds: float | None = None) -> None:
        """`seconds`: time limit of each call, instead of that of its route; the wait that a call
        requests is added."""
        caller = RouteCaller(transport, seconds)
        self.agents = AgentsClient(caller)
        self.alerts = AlertsClient(caller)
        self.apps = AppsClient(caller)
        self.audit = AuditClient(caller)
        self.center = OverviewClient(caller)
        self.deliveries = DeliveriesClient(caller)
        self.dispatches = DispatchesClient(caller)
        self.driver = DriverClient(caller)
        self.failure_groups = FailureGroupsClient(caller)
        self.events = EventsClient(caller)
        self.failures = FailuresClient(caller)
        self.generators = GeneratorsClient(caller)
        self.health = HealthClient(caller)
        self.hosts = HostsClient(caller)
        self.jobs = JobsClient(caller)
        self.logs = LogsClient(caller)
        self.login = LoginClient(caller)
        self.operations = OperationsClient(caller)
        self.placement = PlacementClient(caller)
        self.queue = QueueClient(caller)
        self.requests = RequestsClient(caller)
        self.results = ResultsClient(caller)
        self.runs = RunsClient(caller)
        self.secrets = SecretsClient(caller)
        self.series = SeriesClient(caller)
        self.schedules = SchedulesClient(caller)
        self.storage = StorageClient(caller)
        self.tokens = TokensClient(caller)
        self.users = UsersClient(caller)
        self.views = ViewsClient(caller)
        self.why = WhyClient(caller)


class RouteCaller:
    """Calls routes over a transport: encodes requests, decodes answers."""

    def __init__(self, transport: Transport, seconds: float | None = None) -> None:
        self._transport = transport
        self._seconds = seconds

    async def call(
        self,
        route: Route[G],
        *names: object,
        asks: Any = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        starts_run: bool = False,
    ) -> G:
        seconds = self._seconds_of(route) + _wait_of(asks) + _wait_of(body)
        if starts_run:
            seconds += await self._start_wait()
        data, sent = _encoded(route, body)
        path = route.at(*names) + _query(asks)
        request = Request(
            route.method, path, data, {**sent, **(headers or {})}, seconds, route.also
        )
        gives = cast("type[G]", route.gives)
        return await self._transport.send(request, lambda answer: answer.decoded(gives))

    async def content(self, route: Route[Any], *names: object, asks: Any = None) -> bytes:
        request = self._plain(route, names, asks)
        return await self._transport.send(request, lambda answer: answer.content)

    def stream(
        self,
        route: Route[Any],
        *names: object,
        asks: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[Download]:
        path, seconds = route.at(*names) + _query(asks), self._seconds_of(route)
        return self._transport.stream(
            Request(route.method, path, headers=headers or {}, seconds=seconds)
        )

    def _plain(self, route: Route[Any], names: tuple[object, ...], asks: Any = None) -> Request:
        path = route.at(*names) + _query(asks)
        return Request(route.method, path, seconds=self._seconds_of(route))

    def _seconds_of(self, route: Route[Any]) -> float:
        return route.seconds if self._seconds is None else self._seconds

    async def _start_wait(self) -> float:
        """Seconds that the center may wait for agents before it answers."""
        try:
            return (await self.call(GET_VERSION)).start_wait
        except SkepError:  # the call itself reports the error
            return 0.0


def _wait_of(asked: Any) -> float:
    """Seconds that a call asks the center to wait before it answers."""
    return float(getattr(asked, "wait", 0.0))


def _encoded(route: Route[Any], body: Any) -> tuple[bytes | None, dict[str, str]]:
    """The body of a call, and the headers with its type and the accepted types."""
    kind = codec.MSGPACK if route.packed else codec.JSON
    headers = {"Accept": kind}
    if body is None:
        return None, headers
    headers["Content-Type"] = kind
    if not route.packed:
        return codec.encode(sparse(body), kind), headers
    data, encoding = codec.compress(codec.encode(body, kind))
    return data, {**headers, "Content-Encoding": encoding} if encoding else headers


def _query(asks: msgspec.Struct | None) -> str:
    given = {} if asks is None else set_fields(asks)
    pairs = {name: _text(value) for name, value in given.items() if value is not None}
    return f"?{urlencode(pairs, doseq=True)}" if pairs else ""


def _text(value: Any) -> str | list[str]:
    if isinstance(value, list):
        return [str(one) for one in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
