"""Reads live updates: events from a center, for as long as the caller iterates.

Used by the command line, the portal and tests. It connects again after a lost connection, at
another center if needed, and continues after the last event.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from skep.errors import CenterUnreachable, Malformed, SkepError
from skep.runtime.clock import Clock
from skep.wire.api.monitoring.events import LiveData, LiveEvent, WhichEvents
from skep.wire.client.api import CenterApi

#: Seconds before the next connection.
AGAIN = 1.0
#: Maximum bytes of one event.
EVENT_LIMIT = 16 * 1024 * 1024


async def follow(api: CenterApi, watches: Sequence[str], clock: Clock) -> AsyncIterator[LiveEvent]:
    """All events of these watches. After a `reload` the lists come again as pages. Raises what the
    center refuses."""
    asks, last = WhichEvents(list(watches)), ""
    while True:
        try:
            async with api.events.watch(asks, last) as download:
                async for event in read_events(download.pieces):
                    last = "" if event.event == "reload" else event.id or last
                    yield event
        except SkepError as error:
            if not error.retryable:
                raise
        await clock.sleep(AGAIN)


async def read_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[LiveEvent]:
    """Events from the bytes of a stream; comments are left out. Raises CenterUnreachable for bytes
    that are not such a stream."""
    left = b""
    async for piece in pieces:
        *whole, left = (left + piece).split(b"\n\n")
        if len(left) > EVENT_LIMIT:
            raise CenterUnreachable(f"an event exceeds {EVENT_LIMIT} bytes")
        for block in whole:
            if (event := _event(block)) is not None:
                yield event


def _event(block: bytes) -> LiveEvent | None:
    fields = dict(_field(line) for line in block.split(b"\n") if line[:1] not in (b":", b""))
    if "data" not in fields or "event" not in fields:
        return None
    try:
        data = msgspec.json.decode(fields["data"], type=LiveData)
        plain = {"event": fields["event"].decode(), "id": fields.get("id", b"").decode()}
        return msgspec.convert({**plain, "data": data}, LiveEvent)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"an event cannot be read: {error}") from error


def _field(line: bytes) -> tuple[str, bytes]:
    name, _, value = line.partition(b":")
    return name.decode(), value.removeprefix(b" ")
