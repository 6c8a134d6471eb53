"""A Redis server as the place of an input: its connection, its name, and its errors in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import redis
from redis import exceptions as known

from skep.errors import ConfigurationError, SkepError, Unavailable
from skep.streams.blocking_thread import OneThread

#: Seconds that a call may take.
TIMEOUT = 10.0
P = ParamSpec("P")
T = TypeVar("T")


class RedisPlace:
    """Calls run in one thread, because the library blocks; it is faster than the asynchronous
    one."""

    def __init__(self, url: str, what: str) -> None:
        """`what` names the stream or list. Raises ConfigurationError for a wrong URL."""
        self._thread = OneThread("redis-input")
        try:
            self.client = redis.Redis.from_url(
                url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT
            )
        except ValueError as error:
            raise ConfigurationError(f"redis input: {error}") from error
        kwargs = self.client.connection_pool.connection_kwargs
        place = f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
        self.name = f"redis://{place} {what}"

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Raises Unavailable or ConfigurationError instead of the errors of the library."""
        try:
            return await self._thread.run(work, *args, **kwargs)
        except (known.RedisError, OSError) as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> SkepError:
        told = f"{self.name}: {error}"
        if isinstance(error, known.AuthenticationError | known.NoPermissionError):
            return ConfigurationError(told)
        if isinstance(error, known.ResponseError) and "WRONGTYPE" in str(error):
            return ConfigurationError(told)
        return Unavailable(told)

    async def close(self) -> None:
        await self._thread.run(self.client.close)
        await self._thread.close()
