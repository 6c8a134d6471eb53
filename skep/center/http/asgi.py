"""Connects HTTP calls to endpoints, with Starlette's routing and plain ASGI.

It makes no decisions: it reads (never more than the limit), checks the role, decodes, calls
and encodes. Every error is sent as problem+json with a stable code.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any

import msgspec
import msgspec.inspect
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from skep import __version__
from skep.access.login_attempts import WINDOW
from skep.center.http.authentication import LOOK_ONLY, REMEMBER_SECONDS, Role, check_role
from skep.center.http.call_audit import CallAudit
from skep.center.http.connections.protocol import SCOPE_KEY
from skep.center.http.endpoint import AuditNotes, Call, Endpoint, Raw, Streamed
from skep.center.http.scoping import check_scope
from skep.center.http.session_cookie import check_same_origin
from skep.center.services import Services
from skep.errors import (
    CenterStopping,
    InvalidInput,
    Malformed,
    NotFound,
    OldProtocol,
    SkepError,
    TooLarge,
    TooManyTries,
    WrongMethod,
)
from skep.jobs.definitions.masked_jobs import MASKS
from skep.runtime.ids import new_id
from skep.runtime.masked_answers import masked
from skep.runtime.masking import mask_text
from skep.runtime.value_errors import explained
from skep.wire import codec
from skep.wire.messages import OLDEST_PROTOCOL, PROTOCOL, PROTOCOL_HEADER
from skep.wire.problem import PROBLEM, problem_of

log = logging.getLogger(__name__)

_SUPPORTED = tuple(str(version) for version in range(OLDEST_PROTOCOL, PROTOCOL + 1))
#: A length with more digits exceeds every limit.
_DIGITS = 18
#: Milliseconds after which a client that acknowledges nothing is cut off.
DEAD_CLIENT = 30_000
#: In the scope of a call: whether its caller may only read.
_READ_ONLY = "skep.read_only"
_STOPPED = (
    "the center stopped before it had an answer: repeat the call, or call another center; a call"
    " with an Idempotency-Key is not applied twice"
)
_SAFE_HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


Answer = Callable[[Request], Awaitable[Response]]


def fixed_paths(services: Services, table: Sequence[Endpoint]) -> dict[tuple[str, str], Answer]:
    """Endpoints of paths that have no parameter, by method and path."""
    fixed = [row for row in table if "{" not in row.path]
    return {(row.method, row.path): _adapter(services, row) for row in fixed}


def routes(services: Services, table: Sequence[Endpoint]) -> list[BaseRoute]:
    """The table as Starlette routes: one per path, so that a 405 names every method of it."""
    by_path: dict[str, dict[str, Answer]] = {}
    for row in table:
        by_path.setdefault(row.path, {})[row.method] = _adapter(services, row)
    paths = sorted(by_path, key=_fixed_first)
    return [_Path(path, _by_method(by_path[path]), methods=list(by_path[path])) for path in paths]


class _Path(Route):
    """A path of the table. A call with another method gets a 405; it is not passed on to a path
    with a parameter in the same place."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return (Match.FULL if match is Match.PARTIAL else match), child


def _fixed_first(path: str) -> list[bool]:
    """`/jobs/{job}/fires` before `/jobs/{job}/{verb}`, independent of the order in the table."""
    return ["{" in part for part in path.split("/")]


def _by_method(answers: dict[str, Answer]) -> Answer:
    async def answer(request: Request) -> Response:
        # Starlette accepts HEAD wherever it accepts GET; the server sends no body for it.
        return await answers["GET" if request.method == "HEAD" else request.method](request)

    return answer


def _adapter(services: Services, row: Endpoint) -> Answer:
    timer = services.metrics.call_seconds.labels(row.path)

    async def answer(request: Request) -> Response:
        begun = perf_counter()
        try:
            return await _answer(services, row, request)
        except SkepError as error:
            return problem(services, error, masks=request.scope.get(_READ_ONLY, False))
        except asyncio.CancelledError:
            if not services.closing.is_set():
                raise
            return problem(services, CenterStopping(_STOPPED))  # cut off by the server's shutdown
        except ClientDisconnect:
            return Response(status_code=499)  # only counted: the caller has disconnected
        except Exception as error:  # noqa: BLE001 - a bug must not look like a lost connection
            return unexpected(services, request, error)
        finally:
            timer.observe(perf_counter() - begun)

    return answer


async def _answer(services: Services, row: Endpoint, request: Request) -> Response:
    check_protocol(request.headers.get(PROTOCOL_HEADER, ""))
    if not row.is_audited:
        call = await _identified(services, row, request)
        answer = await _handled(services, row, request, call)
        return _finished(row, call, answer, request)
    audit = CallAudit(services, row, request)
    try:
        call = await _identified(services, row, request, audit)
        answer = await _handled(services, row, request, call)
    except Exception as error:
        await audit.failed(error)
        raise
    await audit.done(call)
    return _finished(row, call, answer, request)


async def _handled(services: Services, row: Endpoint, request: Request, call: Call) -> Any:
    if row.asks is not None:
        call.query = _query(request, row.asks)
    if row.takes is not None:
        call.body = await _body(services, row, request)
    begun = services.clock.monotonic()
    answer = await row.handler(call)
    if services.clock.monotonic() - begun > REMEMBER_SECONDS:
        # A credential that was revoked while its call waited here gets no answer.
        await _identified(services, row, request)
    return answer


def _finished(row: Endpoint, call: Call, answer: Any, request: Request) -> Response:
    if call.who.role in LOOK_ONLY and row.gives is not None:
        answer = masked(answer, {**MASKS, **dict.fromkeys(row.clear, _unchanged)})
    response = _response(row, answer, request)
    response.headers.update(call.answer_headers)
    return response


async def _identified(
    services: Services, row: Endpoint, request: Request, audit: CallAudit | None = None
) -> Call:
    """The call of a known caller who may make it. Raises Unauthorized, Forbidden, TooManyTries."""
    path = dict(request.path_params)
    origin = request.client.host if request.client else ""
    token = request.headers.get("authorization", "")
    session = "" if token else services.people.cookie.read(request)
    who = await services.auth.caller(token, row.role, origin, session)
    request.scope[_READ_ONLY] = who.role in LOOK_ONLY
    if audit is not None:
        audit.identified(who)
    check_role(who, row.role, _driven(row, path))
    if who.session:
        check_same_origin(request)
    if row.role is not Role.PUBLIC:
        mark_authenticated(request.scope)
    call = Call(
        services,
        who,
        path,
        headers=request.headers,
        gone=request.is_disconnected,
        origin=origin,
        scheme=request.url.scheme,
        session=session,
        audit=AuditNotes() if audit is None else audit.notes,
        check=partial(_identified, services, row, request),
    )
    await check_scope(call, row)
    if audit is not None:
        await audit.begin()
    return call


def _driven(row: Endpoint, path: dict[str, Any]) -> str:
    """The run of the path, whose driver may call too."""
    return path.get("identity") or path.get("run", "") if row.for_driver else ""


def _unchanged(value: Any) -> Any:
    return value


def mark_authenticated(scope: MutableMapping[str, Any]) -> None:
    """Exempt the connection of this call from the limits for callers without a valid token."""
    connection = scope.get(SCOPE_KEY)
    if connection is not None:
        connection.has_token()


def check_protocol(text: str) -> None:
    """Raises OldProtocol, which says which side to upgrade. Empty means the current version."""
    if not text or text in _SUPPORTED:
        return
    newer = text.isascii() and text.isdecimal() and len(text) < _DIGITS and int(text) > PROTOCOL
    advice = "upgrade this center first" if newer else "upgrade the caller (pip install -U skep)"
    raise OldProtocol(
        f"protocol {text[:20]!r} is not supported; this center (Skep {__version__}) supports "
        f"{' and '.join(_SUPPORTED)}: {advice}; see docs/how-to/upgrade.md"
    )


def _query(request: Request, kind: type) -> Any:
    given = _given(request.query_params, kind)
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        text = explained(error, given, kind, "parameter")
        raise InvalidInput(f"the query is not valid: {text}") from error


def _given(query: QueryParams, kind: type) -> dict[str, Any]:
    """The parameters; those that are lists may be repeated."""
    lists = {
        one.name
        for one in msgspec.structs.fields(kind)
        if isinstance(msgspec.inspect.type_info(one.type), msgspec.inspect.ListType)
    }
    return {name: query.getlist(name) if name in lists else query[name] for name in query}


async def _body(services: Services, row: Endpoint, request: Request) -> Any:
    limit = row.body_limit or services.settings.center.body_limit
    data = await _read(request, limit)
    data = codec.decompress(data, request.headers.get("content-encoding", ""), limit)
    if not data:
        raise Malformed("the body is empty; send JSON or msgpack")
    return codec.decode(data, row.takes, _kind_of(request))


def _kind_of(request: Request) -> str:
    """Absent means JSON. Types that web pages can send across origins (forms) are refused."""
    kind = request.headers.get("content-type", codec.JSON).partition(";")[0].strip().lower()
    if kind not in {codec.JSON, codec.MSGPACK}:
        raise Malformed(
            f"content type {kind[:100]!r} is not supported; send {codec.JSON} or {codec.MSGPACK}"
        )
    return kind


async def _read(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and (len(announced) > _DIGITS or int(announced) > limit):
        raise TooLarge(f"the body has {announced} bytes; the limit is {limit} bytes")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise TooLarge(f"the body exceeds {limit} bytes; send it in smaller parts")
        parts.append(part)
    return b"".join(parts)


class _Streaming(StreamingResponse):
    """Sends the parts of an answer, and says when it has ended."""

    def __init__(self, answer: Streamed, scope: Scope) -> None:
        headers = {**_SAFE_HEADERS, **answer.headers}
        if answer.size is not None:
            headers["content-length"] = str(answer.size)
        else:
            drop_dead_client(scope)
        super().__init__(answer.parts, 200, headers, media_type=answer.content_type)
        self._ended = answer.ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def drop_dead_client(scope: MutableMapping[str, Any]) -> None:
    """Let the kernel close the connection of a client that acknowledges nothing any more: the few
    bytes of a quiet stream would stay unsent for a quarter of an hour."""
    connection = scope.get(SCOPE_KEY)
    found = None if connection is None else connection.transport.get_extra_info("socket")
    if found is not None:
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        if option is not None:
            with suppress(OSError):  # the client has closed the connection already
                found.setsockopt(socket.IPPROTO_TCP, option, DEAD_CLIENT)


def _response(row: Endpoint, result: Any, request: Request) -> Response:
    if isinstance(result, Raw):
        headers = {**_SAFE_HEADERS, **result.headers}
        return Response(result.content, result.status, headers, media_type=result.content_type)
    if isinstance(result, Streamed) and result.size is None and request.method == "HEAD":
        result.ended()  # nothing reads its body, which has no end
        return Response(None, 200, _SAFE_HEADERS, media_type=result.content_type)
    if isinstance(result, Streamed):
        return _Streaming(result, request.scope)
    kind = codec.MSGPACK if codec.MSGPACK in request.headers.get("accept", "") else codec.JSON
    data, encoding = codec.encode(result, kind), ""
    if codec.ZSTD in request.headers.get("accept-encoding", ""):
        data, encoding = codec.compress(data)
    headers = dict(_SAFE_HEADERS)
    if encoding:
        headers["content-encoding"] = encoding
    return Response(data, row.status, headers, media_type=kind)


def problem(
    services: Services, error: SkepError, instance: str = "", *, masks: bool = False
) -> Response:
    """An error as an answer, counted. `masks`: the caller may not read credentials."""
    services.metrics.problems.labels(error.code).inc()
    services.disk.heard(error)
    body = problem_of(error)
    if masks:
        body.detail = mask_text(body.detail)
    if instance:
        body.instance = instance
    headers = dict(_SAFE_HEADERS)
    if error.status == 401:  # noqa: PLR2004
        headers["www-authenticate"] = "Bearer"
    if error.retryable:
        headers["retry-after"] = "1"
    elif isinstance(error, TooManyTries):
        headers["retry-after"] = str(int(WINDOW))
    return Response(msgspec.json.encode(body), error.status, headers, media_type=PROBLEM)


def unexpected(services: Services, request: Request, cause: Exception) -> Response:
    """An unexpected error: the caller gets an id for it, the log gets the traceback."""
    name = new_id("bug", services.clock.now(), services.rng)
    log.error("%s: %s %s", name, request.method, request.url.path, exc_info=cause)
    error = SkepError(f"this is a bug in Skep; find {name} in the center's log")
    return problem(services, error, name)


def no_such_route(services: Services) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Starlette's own 404 and 405 as problem+json."""

    async def answer(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        kind = {404: NotFound, 405: WrongMethod}.get(status, SkepError)
        called = f"{request.method} {request.url.path}"
        page = f"{request.scope.get('root_path', '')}/openapi.json"
        response = problem(services, kind(f"{called} is not part of the API; see {page}"))
        response.headers.update(getattr(error, "headers", None) or {})
        return response

    return answer
