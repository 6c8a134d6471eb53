"""Records into Redis: pushed to a list, added to a stream, or kept in a hash by key.

A batch is one MULTI: all of it is there or nothing is. At least once: what Redis answered
is as durable as Redis is set to be (`appendfsync`). It never deletes anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis import asyncio as aioredis
from redis import exceptions as known

from skep.errors import ConfigurationError, SkepError, Unavailable
from skep.streams.host_rules import HostRules, JobLimits
from skep.streams.json_records import as_json, field_of, key_text, sort_out
from skep.streams.ports import Record, Refused
from skep.streams.sink_options import RedisOptions
from skep.streams.sink_url import SinkUrl

TIMEOUT = 10.0
Command = tuple[str | bytes | int, ...]


def checked_connection(base: type[Any], rules: HostRules, written: str) -> type[Any]:
    """Connections that go only where `rules` lets them; `written` is the host of the URL."""

    class CheckedConnection(base):  # type: ignore[misc]  # its class is known when it runs
        _address = ""

        async def _connect(self) -> None:
            found = await asyncio.to_thread(
                rules.addresses, self.host, int(self.port), written=self.host == written
            )
            self._address = found[0]
            await super()._connect()

        def _connection_arguments(self) -> dict[str, Any]:
            said = {**super()._connection_arguments(), "host": self._address}
            return said | ({"server_hostname": self.host} if "ssl" in said else {})

    return CheckedConnection


class RedisSink:
    """One list, stream or hash."""

    def __init__(
        self, place: SinkUrl, options: RedisOptions, limits: JobLimits | None = None
    ) -> None:
        self._place, self._options, self._limits = place, options, limits
        if sum(map(bool, (options.list, options.stream, options.hash))) != 1:
            raise ConfigurationError("redis sink: give one of list=, stream= or hash=.")
        if bool(options.hash) != bool(options.key):
            raise ConfigurationError("redis sink: hash= needs key=, and only hash= has one.")
        try:
            self._client = aioredis.Redis.from_url(
                place.url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT
            )
        except ValueError as error:
            raise ConfigurationError(f"redis sink: {error}") from error
        if limits is not None:
            pool = self._client.connection_pool
            host = str(pool.connection_kwargs.get("host", "localhost"))
            pool.connection_class = checked_connection(pool.connection_class, limits.hosts, host)

    async def open(self) -> int:
        try:
            await self._client.execute_command("PING")  # type: ignore[no-untyped-call]  # theirs
        except (known.RedisError, OSError) as error:
            raise self._explain(error) from error
        return 0

    async def write(self, records: Sequence[Record]) -> list[Refused]:
        commands, refused = sort_out(records, self._command)
        if refused or not commands:
            return refused
        try:
            async with self._client.pipeline(transaction=True) as batch:
                for command in commands:
                    batch.execute_command(*command)
                await batch.execute()
        except (known.RedisError, OSError) as error:
            raise self._explain(error) from error
        return []

    async def close(self) -> None:
        await self._client.aclose()

    def describe(self) -> str:
        options = self._options
        return f"{self._place.shown} {options.list or options.stream or options.hash}"

    def _command(self, record: Record) -> Command:
        options, data = self._options, as_json(record.data)
        if options.list:
            return "RPUSH", options.list, data
        if options.stream:
            return "XADD", options.stream, "*", "position", record.position, "data", data
        return "HSET", options.hash, key_text(field_of(record, options.key)), data

    def _explain(self, error: Exception) -> SkepError:
        if isinstance(error.__cause__, SkepError):  # of the rules for hosts
            return error.__cause__
        said = f"{self._place.shown}: {type(error).__name__ if self._limits else error}"
        if isinstance(error, known.AuthenticationError | known.AuthorizationError):
            return ConfigurationError(said)
        away = (known.BusyLoadingError, known.ReadOnlyError, known.OutOfMemoryError)
        if isinstance(error, known.ResponseError) and not isinstance(error, away):
            # A wrong type of key, a denied command: no record is at fault.
            return ConfigurationError(said)
        return Unavailable(said)
