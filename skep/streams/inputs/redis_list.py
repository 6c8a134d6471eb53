"""Messages of a Redis list, oldest first.

A list has no groups and no positions, so its promise is weaker than that of a stream: each message
goes to one reader, what a reader holds is in a second list under its name, and it comes back only
when a reader of that name opens the list again. Equal messages cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skep.streams.inputs.ports import InputMessage
from skep.streams.inputs.redis_place import TIMEOUT, RedisPlace


class RedisListInput:
    """One reader of one list. Messages are pushed to its tail (RPUSH)."""

    def __init__(self, url: str, key: str, consumer: str, session: str) -> None:
        """`session` differs with each start: it is a part of positions."""
        self._place = RedisPlace(url, key)
        self._key, self._held = key, f"{key}:held:{consumer}"
        self._session = session
        self._count = 0
        #: Position -> body of each message that is not acknowledged.
        self._open: dict[str, bytes] = {}

    async def open(self) -> None:
        self._open = {}
        await self._place.run(self._put_back)

    async def read(self, limit: int, wait: float) -> list[InputMessage]:
        found = await self._place.run(self._take, limit, min(wait, TIMEOUT / 2))
        return [self._message(body) for body in found]

    async def acknowledge(self, positions: Sequence[str]) -> None:
        known = {position: self._open[position] for position in positions if position in self._open}
        if known:
            await self._place.run(self._remove, list(known.values()))
            for position in known:
                del self._open[position]

    async def close(self) -> None:
        await self._place.close()

    def describe(self) -> str:
        return self._place.name

    def _message(self, body: bytes) -> InputMessage:
        self._count += 1
        position = f"{self._session}-{self._count}"
        self._open[position] = body
        return InputMessage(position, body)

    # -- in the thread

    def _put_back(self) -> None:
        """What this reader held goes back to the head, in its order."""
        while self._place.client.lmove(self._held, self._key, "RIGHT", "LEFT") is not None:
            pass

    def _take(self, limit: int, wait: float) -> list[bytes]:
        with self._place.client.pipeline(transaction=False) as calls:
            for _ in range(limit):
                calls.lmove(self._key, self._held, "LEFT", "RIGHT")
            found: list[Any] = [body for body in calls.execute() if body is not None]
        if found or not wait:
            return found
        seconds: Any = wait  # typed as an integer; Redis takes fractions
        one: Any = self._place.client.blmove(self._key, self._held, seconds, "LEFT", "RIGHT")
        return [] if one is None else [one]

    def _remove(self, bodies: Sequence[bytes]) -> None:
        with self._place.client.pipeline(transaction=True) as calls:
            for body in bodies:
                calls.lrem(self._held, 1, body)  # type: ignore[arg-type]  # bytes are right
            calls.execute()
