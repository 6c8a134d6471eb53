"""The endpoint table and the typed client are one API: a method for each row, the same types.

The last tests call every method on a real center, over both transports.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from skep.center.app import api_table
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Endpoint
from skep.center.http.openapi_example_data import PATHS
from skep.errors import Conflict, Forbidden, InvalidInput, NotFound, SkepError, UnknownRun
from skep.model.run import AskedSettings
from skep.runtime.clock import SystemClock
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.wire.api import caller as callers
from skep.wire.api.center import WhichLedger
from skep.wire.api.failures import WhichFailures
from skep.wire.api.health import Verbose
from skep.wire.api.route import Route
from skep.wire.api.runs import OpenRun
from skep.wire.client import CenterClient
from skep.wire.client.api import CenterApi, RouteCaller
from skep.wire.client.in_process import InProcessTransport
from skep.wire.client.transport import Request, Transport

#: Agents have messages of their own (`wire/messages.py`) and a client of their own.
ROWS = {row.route.id: row for row in api_table() if not row.path.startswith("/node/")}


@dataclass(frozen=True)
class Called:
    """What a method of the client did with its arguments."""

    route: Route[Any]
    names: tuple[object, ...]
    asks: Any = None
    body: Any = None
    streamed: bool = False


class Recorder:
    """In place of a caller: notes what it is asked to call."""

    def __init__(self) -> None:
        self.calls: list[Called] = []

    async def call(self, route: Route[Any], *names: object, **more: Any) -> Any:
        self.calls.append(Called(route, names, more.get("asks"), more.get("body")))

    async def content(self, route: Route[Any], *names: object, asks: Any = None) -> bytes:
        self.calls.append(Called(route, names, asks))
        return b""

    def stream(self, route: Route[Any], *names: object, **more: Any) -> Any:
        self.calls.append(Called(route, names, more.get("asks"), streamed=True))


class NoTransport:
    """The client of these tests is never used."""

    async def send(self, request: Request, _read: Callable[[Any], Any]) -> Any:
        raise AssertionError(request)

    def stream(self, request: Request) -> Any:
        raise AssertionError(request)


def methods() -> Iterator[tuple[str, type, Any]]:
    """(resource.method, class of the resource, function), of the client as it is composed."""
    for attribute, resource in vars(CenterApi(NoTransport())).items():
        for name, function in inspect.getmembers(type(resource), inspect.isfunction):
            if not name.startswith("_"):
                yield f"{attribute}.{name}", type(resource), function


METHODS = {name: (kind, function) for name, kind, function in methods()}


async def recorded(kind: type, function: Any) -> tuple[Called, dict[str, Any]]:
    """The one call that a method makes, and its arguments: a value of its own for each."""
    recorder = Recorder()
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    given = {name: f"<{name}>" for name in names}
    given.pop("revision", None)
    given.pop("key", None)
    found = function(kind(recorder), **given)
    if inspect.isawaitable(found):
        await found
    (call,) = recorder.calls
    return call, given


async def routes_of_methods() -> dict[str, str]:
    """Method: the id of its route."""
    return {name: (await recorded(*METHODS[name]))[0].route.id for name in METHODS}


async def test_every_row_has_one_method_and_every_method_has_a_row() -> None:
    """C8: what the table offers the client can call, and the client calls nothing else."""
    found = sorted((await routes_of_methods()).values())
    assert found == sorted(ROWS)


@pytest.mark.parametrize("method", METHODS)
async def test_a_method_calls_the_route_of_the_table_with_its_types(method: str) -> None:
    """C8: the same route object; names, body, query and answer as the row has them."""
    kind, function = METHODS[method]
    call, given = await recorded(kind, function)
    row, hints = ROWS[call.route.id], get_type_hints(function)
    assert call.route is row.route
    in_path = [name for name in given if f"<{name}>" in call.names]
    assert list(call.names) == [f"<{name}>" for name in in_path]
    assert len(in_path) == len(row.route.names)
    assert _type_of(call.body, given, hints) == row.takes
    assert _type_of(call.asks, given, hints) == (row.asks and row.asks | None)
    if row.gives is None:
        assert hints["return"] is bytes or call.streamed
    else:
        assert hints["return"] is row.gives
    if "verb" in hints:
        assert get_args(hints["verb"]) == tuple(row.parameters["verb"]["enum"])


def _type_of(value: Any, given: dict[str, Any], hints: dict[str, Any]) -> Any:
    """The annotation of the parameter that was passed on as `value`."""
    return next((hints[name] for name, one in given.items() if one == value), None)


def test_a_constant_is_named_for_its_operation() -> None:
    """So that a route can be found by its id in the API's description."""
    modules = {kind.__module__ for kind, _ in METHODS.values()}
    found = {
        name: value.id
        for module in modules
        for name, value in vars(inspect.importlib.import_module(module)).items()  # type: ignore[attr-defined]
        if isinstance(value, Route)
    }
    assert {name: name.lower() for name in found} == found
    assert set(found.values()) == set(ROWS)


@pytest.mark.parametrize("value", [".", ".."])
def test_a_name_cannot_lead_to_another_path(value: str) -> None:
    """S8: segments are quoted, and those that a URL resolves are refused."""
    route: Route[Any] = Route("x_y", "GET", "/api/v1/runs/{run}/{verb}")
    assert route.at("a/b?c#d", "é") == "/api/v1/runs/a%2Fb%3Fc%23d/%C3%A9"
    with pytest.raises(InvalidInput):
        route.at(value, "pause")


class Kept:
    """A transport that keeps the request."""

    request: Request

    async def send(self, request: Request, _read: Callable[[Any], Any]) -> Any:
        self.request = request

    def stream(self, request: Request) -> Any:
        self.request = request


async def sent(call: Callable[[CenterApi], Any], seconds: float | None = None) -> Request:
    kept = Kept()
    await call(CenterApi(kept, seconds))
    return kept.request


async def test_only_what_was_set_is_sent() -> None:
    """A newer client calls an older center: fields that were not set are left out."""
    asked = await sent(lambda api: api.failures.list(WhichFailures(status=404, text="a&b=c")))
    assert asked.path == "/api/v1/failures?status=404&text=a%26b%3Dc"
    assert (await sent(lambda api: api.center.ledger(WhichLedger(audit=True)))).path.endswith(
        "?audit=true"
    )
    assert (await sent(lambda api: api.health.ready(Verbose("")))).path == "/readyz?verbose="
    assert (await sent(lambda api: api.runs.list())).path == "/api/v1/runs"
    kept = Kept()
    body = OpenRun(settings=AskedSettings(retries=3))
    with pytest.raises(AttributeError):  # this transport answers nothing
        await RouteCaller(kept).call(ROWS["open_run"].route, "r", body=body, starts_run=True)
    await RouteCaller(kept).call(ROWS["open_run"].route, "r", body=body)
    assert kept.request.body == b'{"settings":{"retries":3}}'


async def test_a_call_may_take_as_long_as_its_route_says() -> None:
    """What the center is asked to wait comes on top, also over a bound of the caller's."""
    wait = msgspec.convert({"wait": 7.0}, ROWS["change_run"].asks)
    change: Callable[[CenterApi], Any] = lambda api: api.runs.change("r", "pause", wait)  # noqa: E731
    assert (await sent(change)).seconds == ROWS["change_run"].route.seconds + 7.0
    assert (await sent(change, 2.0)).seconds == 9.0


# -- a real center, every method, both transports


@asynccontextmanager
async def http(center: RunningCenter, token: str) -> AsyncIterator[Transport]:
    async with CenterClient([center.url], token, SystemClock(), Random(1)) as client:
        yield client.transport


@asynccontextmanager
async def in_process(center: RunningCenter, token: str) -> AsyncIterator[Transport]:
    yield InProcessTransport(center.local.center.app, token)


#: Called first, in this order: others need what they make.
FIRST = (
    *("open_run", "submit_requests", "set_job", "start_driver", "dispatch_blocks"),
    *("read_ended_requests", "save_checkpoint", "list_finished_requests", "run_job"),
    "create_user",
)
#: Called last: they end what others need.
LAST = (
    *("change_run", "end_driver", "change_job", "disable_job", "enable_job", "delete_job"),
    *("clear_site", "command_agent", "clean_storage", "delete_user", "delete_user_group"),
)
#: What the examples name and this center does not have.
ABSENT: dict[str, type[SkepError]] = {
    "get_instance_log": NotFound,
    "restart_instance": NotFound,
    "stop_instance": NotFound,
    "get_failure_group": NotFound,
    "revoke_token": NotFound,
    "delete_view": NotFound,
    "delete_secret": NotFound,
    "end_session": NotFound,
    "set_own_password": Conflict,
    "change_run_deliveries": Conflict,
    "acknowledge_alert": NotFound,
    "mute_alert": NotFound,
    "get_kept_failure_group": NotFound,
    "resolve_failure_group": NotFound,
    "ignore_failure_group": NotFound,
    "reopen_failure_group": NotFound,
    "get_operation": NotFound,
    "cancel_operation": NotFound,
    "get_operation_file": NotFound,
}


def arguments(row: Endpoint, hints: dict[str, Any]) -> dict[str, Any]:
    """Those of the API's description, by the names of the method's parameters."""
    path = {name: _named(row, name) for name in row.route.names}
    values = iter(path.values())
    given: dict[str, Any] = {}
    for name, kind in hints.items():
        if name in {"return", "revision", "key", "last"}:
            continue
        if kind == row.takes and row.takes is not None:
            given[name] = msgspec.convert(row.route.example, row.takes)
        elif name == "asks":
            given[name] = _asked(row)
        else:
            given[name] = next(values)
    return given


def _named(row: Endpoint, name: str) -> Any:
    schema = row.parameters.get(name, {})
    return schema["enum"][0] if "enum" in schema else PATHS[name]


def _asked(row: Endpoint) -> Any:
    return msgspec.convert(row.route.query_example, row.asks, strict=False)


async def called(api: CenterApi, method: str, row: Endpoint) -> Any:
    """The answer, or the error; bytes of what is streamed."""
    resource, name = method.split(".")
    bound = getattr(getattr(api, resource), name)
    given = arguments(row, get_type_hints(bound))
    streamed = "AbstractAsyncContextManager" in str(get_type_hints(bound)["return"])
    try:
        return await (_downloaded(bound(**given)) if streamed else bound(**given))
    except SkepError as error:
        return error


async def _downloaded(opening: AbstractAsyncContextManager[callers.Download]) -> bytes:
    async with opening as download:
        assert isinstance(download, callers.Download)
        return await download.read()


async def in_order() -> list[tuple[str, str]]:
    """(method, id of its route), so that each finds what it needs."""
    by_id = {route: method for method, route in (await routes_of_methods()).items()}
    others = [route for route in by_id if route not in FIRST and route not in LAST]
    return [(by_id[route], route) for route in (*FIRST, *others, *LAST)]


@pytest.mark.parametrize("transport", [http, in_process])
async def test_every_method_works_on_a_real_center(tmp_path: Path, transport: Any) -> None:
    """C8: with the examples of the API's description; each answer has the type of its row."""
    async with running_center(tmp_path / "center") as center:
        await center.archive_pages(1, "books", "attic")
        async with transport(center, center.local.admin_token) as way:
            api = CenterApi(way)
            for method, route in await in_order():
                answer = await called(api, method, ROWS[route])
                expected = ABSENT.get(route) or ROWS[route].gives or bytes
                assert isinstance(answer, expected), (method, answer)
                if route == "submit_requests":
                    await center.dispatched()
                if route == "change_run":  # its example pauses
                    await api.runs.change(PATHS["run"], "continue")


#: Parts of answers that are another moment later: clocks, ages, room on disks, memory.
MOMENTS = re.compile(rb"\d+\.\d+(e[-+]?\d+)?|\d{6,}|\b\d+ s ago|# HELP(.|\n)*")


async def test_both_transports_give_equal_answers(tmp_path: Path) -> None:
    """Answers, errors and bytes of every route that changes nothing."""
    async with running_center(tmp_path / "center") as center:
        await center.archive_pages(3, "books", "attic")
        token = center.local.admin_token
        async with http(center, token) as one, in_process(center, token) as other:
            for method, route in await in_order():
                if ROWS[route].method != "GET":
                    continue
                first = await called(CenterApi(one), method, ROWS[route])
                second = await called(CenterApi(other), method, ROWS[route])
                assert type(first) is type(second), method
                assert comparable(first) == comparable(second), method


def comparable(answer: Any) -> bytes:
    if isinstance(answer, SkepError):
        answer = [answer.code, answer.detail]
    data = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    return MOMENTS.sub(b"~", data)


@pytest.mark.parametrize("transport", [http, in_process])
async def test_the_token_decides_over_either_transport(tmp_path: Path, transport: Any) -> None:
    """S4: roles and masking are those of the caller, not of the process."""
    async with running_center(tmp_path / "center") as center:
        await center.open_run("r", headers={"Authorization": "Bearer hidden"})
        token = await center.services.auth.issue(Role.VIEWER, "")
        async with transport(center, token) as way:
            api = CenterApi(way)
            assert (await api.runs.show("r")).run.settings.headers == {"Authorization": "***"}
            with pytest.raises(Forbidden):
                await api.runs.change("r", "pause")
            with pytest.raises(UnknownRun):
                await api.runs.show("none")
            with pytest.raises(NotFound):
                async with api.requests.body(10**9) as download:
                    await download.read()
