"""Live updates as server-sent events: types and route."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skep.model.message_bounds import exact
from skep.wire.api.caller import Download, Resource
from skep.wire.api.route import Route

#: Things that one stream may watch.
WATCHES_LIMIT = 20
Watch = Annotated[
    str, Meta(min_length=1, max_length=2000, extra_json_schema=exact(format="skep-watch"))
]
MEDIA = "text/event-stream"


class WhichEvents(msgspec.Struct, forbid_unknown_fields=True):
    """What to watch."""

    #: A list with a filter (`runs:state:running`) or one object (`run:NAME`); repeatable.
    watch: Annotated[list[Watch], Meta(min_length=1, max_length=WATCHES_LIMIT)]
    #: Close the stream after this many seconds; 0 = never.
    seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0.0


class LiveEvent(msgspec.Struct, frozen=True):
    """One event of the stream."""

    #: `page` is a whole list, `change` a difference; after `reload` and `end` the stream closes.
    event: Literal["page", "change", "reload", "end"]
    data: LiveData
    #: Send it as `Last-Event-ID` to continue here.
    id: str = ""


class LiveData(msgspec.Struct, frozen=True):
    """Fields that an event does not have are empty."""

    #: As the client wrote it.
    watch: str = ""
    #: Every row of a `page`.
    items: list[dict[str, Any]] = []
    #: New and changed rows of a `change`.
    changed: list[dict[str, Any]] = []
    #: Keys of rows that are gone.
    gone: list[str] = []
    #: Why the stream ends.
    reason: str = ""


WATCH_EVENTS: Route[bytes] = Route(
    "watch_events",
    "GET",
    "/api/v1/events",
    asks=WhichEvents,
    media=MEDIA,
    seconds=60.0,
    answer_example='event: page\ndata: {"watch":"runs","items":[]}\n\n',
    query_example={"watch": ["runs:state:running"], "seconds": 0.1},
)


class EventsClient(Resource):
    """Calls the route of this file; `wire/client/events.py` reads the stream."""

    def watch(
        self, asks: WhichEvents | None = None, last: str = ""
    ) -> AbstractAsyncContextManager[Download]:
        """The stream of events, as bytes. `last` is the id of the last event that was read."""
        headers = {"Last-Event-ID": last} if last else {}
        return self._caller.stream(WATCH_EVENTS, asks=asks, headers=headers)
