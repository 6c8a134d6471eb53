"""Live updates as server-sent events. Run by centers.

A stream starts with the lists that it watches and continues with what changes in them. The token
of its caller is checked every few seconds; a caller that loses its role, or whose scope changes,
loses the stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping, Streamed
from skep.errors import Forbidden, InvalidFilter, InvalidInput, TooManyStreams
from skep.wire.api.monitoring.events import MEDIA, WATCH_EVENTS, WhichEvents

#: A proxy that buffers would hold events back.
_HEADERS = {"x-accel-buffering": "no"}
#: More is not an id of ours.
_LAST_LIMIT = 1000


async def watch_events(call: Call) -> Streamed:
    """The lists as they are now, then every change."""
    query: WhichEvents = call.query
    live, origin = call.services.live, call.origin
    last = call.headers.get("last-event-id", "")[:_LAST_LIMIT]
    live.limits.take(origin)
    try:
        stream = await live.hub.open(query.watch, last, _check(call), call.who.scope)
    except BaseException:
        live.limits.free(origin)
        raise

    def ended() -> None:
        live.hub.close(stream)
        live.limits.free(origin)

    return Streamed(stream.parts(query.seconds), MEDIA, None, dict(_HEADERS), ended)


def _check(call: Call) -> Callable[[], Awaitable[object]]:
    """Raises when the caller may no longer watch, or may see something else than at the start."""

    async def check() -> None:
        now: Any = await call.check()
        if now.who.scope != call.who.scope:
            raise Forbidden("your scope has changed; connect again")

    return check


ENDPOINTS = (
    Endpoint(
        WATCH_EVENTS,
        Role.VIEWER,
        watch_events,
        "Watch lists and objects: a stream of server-sent events",
        errors=(InvalidInput, InvalidFilter, TooManyStreams),
        tag="events",
        scoped=Scoping.FILTERED,
        notes="`watch` is `runs`, `requests`, `failures`, `jobs`, `agents` or `operations`, with a"
        " filter after a colon, or `run:NAME`, `request:ID`, `job:NAME`, `agent:ID`,"
        " `operation:ID`. A list has its 100 newest rows. Events: `page` (the whole list), `change`"
        " (rows that are new or different, keys that are gone), `reload` (events were read too"
        " slowly) and `end`. Send the id of the last event as `Last-Event-ID` to continue.",
    ),
)
