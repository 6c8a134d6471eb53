"""Lanes, signals and logs in Redis 7, which several centers share.

Centers run it; it is the only module that uses the Redis client. It must never block a caller
longer than `ANSWER_SECONDS`, never show a password, and never be the only place of any data:
everything that Redis loses is rebuilt from the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError

from skep.bus import redis_scripts
from skep.bus.log_position import parse_position
from skep.bus.ports import Lanes, LogStream, Signals
from skep.errors import BusDown, ConfigurationError
from skep.model.block import BlockRef
from skep.model.lane import Lane
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock, SystemClock
from skep.runtime.retry import Pauses

log = logging.getLogger(__name__)

#: Maximum seconds of any call, including the wait for a connection.
ANSWER_SECONDS = 2.0
#: Maximum seconds of one connect.
CONNECT_SECONDS = 1.0
CONNECTIONS = 16
#: Seconds without a message after which a listener checks that Redis is still there.
QUIET_SECONDS = 5.0
RECONNECT = Backoff(first=0.05, cap=2.0)
#: Approximate maximum lines of one log stream, and its lifetime after the last line.
LOG_LINES, LOG_SECONDS = 10_000, 7 * 86400

_QUEUE = "skep:{lanes}:queue:"
_BLOCKS, _COUNTS, _EPOCH = "skep:{lanes}:blocks", "skep:{lanes}:counts", "skep:{lanes}:epoch"

T = TypeVar("T")


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """A block as it is stored in Redis; the scripts read the first three fields."""

    lane: int
    size: int
    target: str
    ref: BlockRef


class _Link:
    """The connection to one Redis: pools, timeouts, and translation of errors."""

    def __init__(self, url: str) -> None:
        # Redis may have restarted while a connection was idle: then it reconnects, once. A
        # call that timed out is never repeated.
        once = Retry(NoBackoff(), 1, supported_errors=(ConnectionLost,))
        calls = _pool(BlockingConnectionPool, url, retry=once, max_connections=CONNECTIONS)
        self.client = Redis.from_pool(calls)
        # Listeners stay connected, so they must not use up the connections of calls.
        listeners = _pool(ConnectionPool, url, retry=Retry(NoBackoff(), 0))
        self.listening = Redis.from_pool(listeners)
        options = self.client.connection_pool.connection_kwargs
        host, port = options.get("host", "localhost"), options.get("port", 6379)
        self.place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.db = int(options.get("db", 0))

    async def ask(self, call: Awaitable[T]) -> T:
        """The answer within the time limit; raises BusDown otherwise."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await _heard(call)
        except (RedisError, OSError, TimeoutError) as error:
            reason = str(error) or f"no answer for {ANSWER_SECONDS:g} s"
            raise BusDown(f"Redis at {self.place} does not answer: {reason}") from error

    async def close(self) -> None:
        await self.client.aclose()
        await self.listening.aclose()


async def _heard(call: Awaitable[T]) -> T:
    """The answer of a call. A cancelled caller ends, even if the client swallowed the
    cancellation: a loop that missed it would never end, and delay the end of its center."""
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    answer = await call
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return answer


def _pool(kind: type[ConnectionPool], url: str, **options: Any) -> ConnectionPool:
    try:
        return kind.from_url(
            url,
            protocol=2,
            socket_connect_timeout=CONNECT_SECONDS,
            # Skep has its own limit. The client's is an `asyncio.wait_for` around every send,
            # which loses a cancellation that arrives at the same time (Python 3.11).
            socket_timeout=None,
            socket_keepalive=True,
            **options,
        )
    except ValueError as error:
        raise ConfigurationError(
            "bus.url is not a valid Redis URL; write it as redis://USER:PASSWORD@HOST:PORT/DB"
        ) from error


class RedisLanes:
    """Lanes as sorted sets, changed only by scripts, each of which is atomic."""

    def __init__(self, link: _Link, limits: Mapping[Lane, int], rng: Random) -> None:
        self._link = link
        self._limits = dict(limits)
        self._rng = rng
        texts = (
            redis_scripts.PUSH,
            redis_scripts.POP,
            redis_scripts.REMOVE,
            redis_scripts.CLEAR,
            redis_scripts.PRESENT,
        )
        self._push, self._pop, self._remove, self._clear, self._present = (
            link.client.register_script(text) for text in texts
        )

    async def push(self, refs: Sequence[BlockRef]) -> list[BlockRef]:
        if not refs:
            return []
        keys = [_BLOCKS, _COUNTS, *(_queue(ref.lane, ref.target) for ref in refs)]
        values = [value for ref in refs for value in self._values(ref)]
        refused = await self._link.ask(self._push(keys=keys, args=values))
        return [refs[index] for index in refused]

    async def pop(
        self, order: Sequence[Lane], targets: Sequence[str], limit: int
    ) -> list[BlockRef]:
        # A target listed twice would be read twice: its first block would seem to be there
        # still after it was taken.
        targets = list(dict.fromkeys(targets))
        if not (order and targets) or limit < 1:
            return []
        queues = (_queue(lane, target) for lane in order for target in targets)
        values = [limit, len(targets), *(int(lane) for lane in order)]
        entries = await self._link.ask(self._pop(keys=[_BLOCKS, _COUNTS, *queues], args=values))
        return _readable(entries)

    async def sizes(self) -> dict[Lane, int]:
        counts = await self._link.ask(self._link.client.hmget(_COUNTS, [str(int(n)) for n in Lane]))
        return {lane: int(count or 0) for lane, count in zip(Lane, counts, strict=True)}

    async def ids(self) -> set[int]:
        names: Any = await self._link.ask(self._link.client.hkeys(_BLOCKS))
        return {int(name) for name in names if name.lstrip(b"-").isdigit()}

    async def present(self, block_ids: Sequence[int]) -> set[int]:
        if not block_ids:
            return set()
        found = await self._link.ask(self._present(keys=[_BLOCKS], args=list(block_ids)))
        return {int(block) for block in found}

    async def scan(self, after: str, limit: int) -> tuple[list[BlockRef], str]:
        call = self._link.client.hscan(_BLOCKS, cursor=int(after or 0), count=max(1, limit))
        answer: Any = await self._link.ask(call)
        cursor, entries = answer
        return _readable(entries.values()), str(cursor) if cursor else ""

    async def targets(self) -> dict[str, int]:
        entries: Any = await self._link.ask(self._link.client.hvals(_BLOCKS))
        return dict(Counter(ref.target for ref in _readable(entries)))

    async def remove(self, block_ids: Sequence[int]) -> int:
        if not block_ids:
            return 0
        call = self._remove(keys=[_BLOCKS, _COUNTS], args=[_QUEUE, *block_ids])
        return int(await self._link.ask(call))

    async def clear(self) -> None:
        keys = [_BLOCKS, _COUNTS, _EPOCH]
        await self._link.ask(self._clear(keys=keys, args=[_QUEUE, _new_mark(self._rng)]))

    def _values(self, ref: BlockRef) -> tuple[int | bytes, ...]:
        entry = msgspec.msgpack.encode(_Entry(int(ref.lane), ref.size, ref.target, ref))
        limit = self._limits[ref.lane]
        return ref.id, int(ref.lane), ref.size, limit, int(ref.at_head), entry


def _queue(lane: Lane, target: str) -> str:
    return f"{_QUEUE}{int(lane)}:{target}"


def _new_mark(rng: Random) -> str:
    return f"{rng.getrandbits(64):016x}"


def _readable(entries: Iterable[bytes]) -> list[BlockRef]:
    """Refs; an entry of another version or program is dropped, and so offered again."""
    refs = []
    for entry in entries:
        try:
            refs.append(msgspec.msgpack.decode(entry, type=_Entry).ref)
        except (msgspec.DecodeError, UnicodeDecodeError):
            log.warning("dropped a block from a lane in Redis: the entry could not be read")
    return refs


class RedisSignals:
    """Pub/sub. It ignores database numbers, so the channel names include them."""

    def __init__(self, link: _Link, clock: Clock, rng: Random) -> None:
        self._link = link
        self._clock = clock
        self._rng = rng
        self._prefix = f"skep:{link.db}:signal:"

    async def publish(self, channel: str, payload: bytes) -> None:
        await self._link.ask(self._link.client.publish(self._prefix + channel, payload))

    async def listen(self, *channels: str) -> AsyncGenerator[tuple[str, bytes], None]:
        names = [self._prefix + channel for channel in channels]
        pauses = Pauses(RECONNECT, self._rng)
        while True:
            try:
                async with self._link.listening.pubsub() as pubsub:
                    await self._link.ask(pubsub.subscribe(*names))
                    while True:
                        message = await self._next(pubsub)
                        pauses.succeeded()
                        if message["type"] == "message":
                            yield self._own_name(message["channel"]), message["data"]
            except (BusDown, RedisError, OSError) as error:
                level = logging.DEBUG if pauses.failures else logging.WARNING
                log.log(level, "signals of %s interrupted (%s); retrying", self._link.place, error)
            await self._clock.sleep(pauses.failed())

    async def _next(self, pubsub: PubSub) -> dict[str, Any]:
        """The next message. A quiet Redis must answer a ping, or the connection is dead."""
        message = await pubsub.get_message(timeout=QUIET_SECONDS)
        if message is None:
            await self._link.ask(pubsub.ping())
            message = await pubsub.get_message(timeout=ANSWER_SECONDS)
        if message is None:
            raise BusDown(f"Redis at {self._link.place} does not answer a listener")
        return dict(message)

    def _own_name(self, channel: bytes) -> str:
        return channel.decode().removeprefix(self._prefix)


class RedisLogs:
    """One Redis stream per log stream; it expires a week after the last line."""

    def __init__(self, link: _Link) -> None:
        self._link = link

    async def append(self, stream: str, lines: Sequence[Mapping[str, str]]) -> None:
        if not lines:
            return
        pipe = self._link.client.pipeline(transaction=True)
        for line in lines:
            pipe.xadd(_log(stream), {"line": msgspec.json.encode(line)}, maxlen=LOG_LINES)
        pipe.expire(_log(stream), LOG_SECONDS)
        await self._link.ask(pipe.execute())

    async def read(
        self, stream: str, after: str = "0", limit: int = 100
    ) -> list[tuple[str, dict[str, str]]]:
        major, minor = parse_position(after)
        if limit < 1:
            return []
        call = self._link.client.xrange(_log(stream), min=f"({major}-{minor}", count=limit)
        rows: Any = await self._link.ask(call)
        return [(position.decode(), _line(fields)) for position, fields in rows]


def _line(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """A line as it was appended; foreign entries are shown as unreadable, not hidden."""
    try:
        return msgspec.json.decode(fields.get(b"line", b""), type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {"message": "(unreadable line)"}


def _log(stream: str) -> str:
    return f"skep:log:{stream}"


class RedisBus:
    """A bus for centers in several processes or on several machines."""

    def __init__(
        self,
        url: str,
        limits: Mapping[Lane, int],
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self._link = _Link(url)
        self._scheme = urlsplit(url).scheme
        self._rng = rng or Random()  # noqa: S311 - jitter and names, no secrets
        self.lanes: Lanes = RedisLanes(self._link, limits, self._rng)
        self.signals: Signals = RedisSignals(self._link, clock or SystemClock(), self._rng)
        self.logs: LogStream = RedisLogs(self._link)
        self._turn = self._link.client.register_script(redis_scripts.TURN)

    async def open(self) -> None:
        """Connect; raises BusDown, after which the bus can still be used."""
        memory = await self._link.ask(self._link.client.info("memory"))
        policy = str(memory.get("maxmemory_policy", ""))
        if memory.get("maxmemory") and policy.startswith("allkeys"):
            raise ConfigurationError(
                f"Redis at {self._link.place} can evict any key (maxmemory-policy {policy}), "
                "parts of a lane too; set it to noeviction or volatile-lru"
            )
        await self.epoch()

    async def close(self) -> None:
        await self._link.close()

    async def ping(self) -> None:
        await self._link.ask(self._link.client.ping())

    async def epoch(self) -> str:
        """A mark in Redis, and the run id of the server: a restarted server can have kept the mark
        and lost the last second before its end."""
        pipe = self._link.client.pipeline(transaction=True)
        mark = _new_mark(self._rng)
        pipe.set(_EPOCH, mark, nx=True, get=True)
        pipe.info("server")
        found, server = await self._link.ask(pipe.execute())
        return f"{found.decode() if found else mark}@{server['run_id']}"

    async def lead(self, name: str, holder: str, seconds: float) -> bool:
        milliseconds = max(1, round(seconds * 1000))
        call = self._turn(keys=[f"skep:turn:{name}"], args=[holder, milliseconds])
        return bool(await self._link.ask(call))

    def describe(self) -> str:
        return f"{self._scheme}://{self._link.place}/{self._link.db}"
