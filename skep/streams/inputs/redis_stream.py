"""Messages of a Redis stream, through a consumer group.

Several readers of one group share the messages; each group gets all of them. Redis remembers what
is not acknowledged. What a dead reader left is claimed after a time, at the start and periodically:
without that it would wait until a reader of the same name comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from redis import exceptions as known

from skep.runtime.clock import Clock
from skep.streams.inputs.ports import InputMessage
from skep.streams.inputs.redis_place import TIMEOUT, RedisPlace

Entry = tuple[bytes, dict[bytes, bytes] | None]


class StreamOptions(msgspec.Struct, frozen=True):
    """Which messages of which stream."""

    stream: str
    group: str
    #: The name of this reader; equal after a restart.
    consumer: str
    #: Where a new group begins: `0` = the earliest, `$` = the latest, or an id.
    start: str = "0"
    #: The field with the body; an entry without it becomes a JSON object of all its fields.
    field: str = "data"
    #: Seconds after which a message that another reader left is claimed.
    reclaim_after: float = 60.0


class RedisStreamInput:
    """One reader of one stream."""

    def __init__(self, url: str, options: StreamOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._place = RedisPlace(url, f"{options.stream} ({options.group})")
        self._client = self._place.client
        #: The last own entry that was read again after `open`; None when there are no more.
        self._own: bytes | None = b"0"
        self._claimed_at: float | None = None

    async def open(self) -> None:
        self._own, self._claimed_at = b"0", None
        await self._place.run(self._make_group)

    async def read(self, limit: int, wait: float) -> list[InputMessage]:
        return list(await self._place.run(self._read, limit, wait))

    async def acknowledge(self, positions: Sequence[str]) -> None:
        if positions:
            await self._place.run(self._acknowledge, positions)

    async def close(self) -> None:
        await self._place.close()

    def describe(self) -> str:
        return self._place.name

    # -- in the thread

    def _make_group(self) -> None:
        one = self._options
        try:
            self._client.xgroup_create(one.stream, one.group, one.start, mkstream=True)
        except known.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def _read(self, limit: int, wait: float) -> list[InputMessage]:
        try:
            return self._own_again(limit) or self._claimed(limit) or self._new(limit, wait)
        except known.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            self._make_group()  # the stream was deleted, and the group with it
            return []

    def _own_again(self, limit: int) -> list[InputMessage]:
        if self._own is None:
            return []
        entries = self._group_read(self._own, limit, None)
        self._own = entries[-1][0] if entries else None
        return self._counted(entries)

    def _claimed(self, limit: int) -> list[InputMessage]:
        """What other readers left."""
        now = self._clock.monotonic()
        pause = self._options.reclaim_after / 2
        if self._claimed_at is not None and now - self._claimed_at < pause:
            return []
        one = self._options
        idle = max(1, int(one.reclaim_after * 1000))
        _, entries, *_ = self._client.xautoclaim(
            one.stream, one.group, one.consumer, idle, count=limit
        )
        if len(entries) < limit:
            self._claimed_at = now
        return self._counted(entries)

    def _new(self, limit: int, wait: float) -> list[InputMessage]:
        # Shorter than the timeout of the socket; the caller reads again.
        block = int(min(wait, TIMEOUT / 2) * 1000)
        entries = self._group_read(b">", limit, block or None)
        return [self._message(entry, 1) for entry in entries if entry[1] is not None]

    def _group_read(self, after: bytes, limit: int, block: int | None) -> list[Entry]:
        one = self._options
        found: Any = self._client.xreadgroup(
            one.group, one.consumer, {one.stream: after}, count=limit, block=block
        )
        return found[0][1] if found else []

    def _counted(self, entries: Sequence[Entry]) -> list[InputMessage]:
        """With the number of deliveries. Entries that were deleted from the stream are
        acknowledged: their content is gone."""
        gone = [name for name, fields in entries if not fields]
        if gone:
            self._client.xack(self._options.stream, self._options.group, *gone)
        kept = [entry for entry in entries if entry[1]]
        if not kept:
            return []
        one = self._options
        pending: Any = self._client.xpending_range(
            one.stream, one.group, kept[0][0], kept[-1][0], 10 * len(kept), one.consumer
        )
        times = {row["message_id"]: int(row["times_delivered"]) for row in pending}
        return [self._message(entry, times.get(entry[0], 2)) for entry in kept]

    def _message(self, entry: Entry, deliveries: int) -> InputMessage:
        name, fields = entry
        body = (fields or {}).get(self._options.field.encode())
        if body is None:
            shown = {k.decode("utf-8", "replace"): v for k, v in (fields or {}).items()}
            body = msgspec.json.encode({k: v.decode("utf-8", "replace") for k, v in shown.items()})
        return InputMessage(name.decode(), body, deliveries)

    def _acknowledge(self, positions: Sequence[str]) -> None:
        self._client.xack(self._options.stream, self._options.group, *positions)
