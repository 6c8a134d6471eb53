"""Lanes, signals and logs inside one process; several centers in it can share one bus.

A single center uses it, and simulations do because it is deterministic: no threads, no locks, no
randomness, and no method but listening lets another task run. It must never keep more than its
bounds allow, even if listeners do not read.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from itertools import count, islice

from skep.bus.log_position import parse_position
from skep.bus.ports import Lanes, LogStream, Signals
from skep.model.block import BlockRef
from skep.model.lane import Lane
from skep.runtime.clock import Clock, SystemClock

#: Maximum unread signals of a slow listener; the oldest are dropped.
UNREAD_SIGNALS = 1000
#: Maximum lines of one log stream.
LOG_LINES = 10_000
#: Maximum streams; the one without new lines for longest is dropped.
LOG_STREAMS = 1000

#: Blocks of one lane for one target, by id, each with its position in the lane.
_Queue = OrderedDict[int, tuple[int, BlockRef]]


class MemoryLanes:
    """One queue per lane and target, so that a pop never visits blocks of other targets.

    Every push takes the next number; at the tail the number itself is the block's position,
    at the head its negative. So each queue is sorted by position, and the first block of a
    lane for some targets is the smallest of their queues' first blocks.
    """

    def __init__(self, limits: Mapping[Lane, int]) -> None:
        self._limits = dict(limits)
        self._numbers = count(1)
        self._generation = 1
        self._forget()

    def _forget(self) -> None:
        self._queues: dict[tuple[Lane, str], _Queue] = {}
        self._refs: dict[int, BlockRef] = {}
        #: Ids in ascending order, as of the start of the last scan.
        self._walk: list[int] = []
        self._filled = dict.fromkeys(Lane, 0)

    @property
    def generation(self) -> int:
        """Number of times that everything was cleared, plus one."""
        return self._generation

    async def push(self, refs: Sequence[BlockRef]) -> list[BlockRef]:
        return [ref for ref in refs if not self._put(ref)]

    async def pop(
        self, order: Sequence[Lane], targets: Sequence[str], limit: int
    ) -> list[BlockRef]:
        taken: list[BlockRef] = []
        for lane in order:
            while len(taken) < limit and (first := self._first(lane, targets)):
                taken.append(self._take(first))
        return taken

    async def sizes(self) -> dict[Lane, int]:
        return dict(self._filled)

    async def ids(self) -> set[int]:
        return set(self._refs)

    async def present(self, block_ids: Sequence[int]) -> set[int]:
        return {block for block in block_ids if block in self._refs}

    async def scan(self, after: str, limit: int) -> tuple[list[BlockRef], str]:
        if not after:
            self._walk = sorted(self._refs)
        start = bisect_right(self._walk, int(after)) if after else 0
        ids = self._walk[start : start + max(1, limit)]
        more = start + len(ids) < len(self._walk)
        refs = [self._refs[block] for block in ids if block in self._refs]
        return refs, str(ids[-1]) if more else ""

    async def targets(self) -> dict[str, int]:
        return dict(Counter(ref.target for ref in self._refs.values()))

    async def remove(self, block_ids: Sequence[int]) -> int:
        found = [self._refs[block] for block in dict.fromkeys(block_ids) if block in self._refs]
        for ref in found:
            self._take(ref)
        return len(found)

    async def clear(self) -> None:
        self._forget()
        self._generation += 1

    def _put(self, ref: BlockRef) -> bool:
        """False when the block does not fit; a block that is in a lane already stays."""
        if ref.id in self._refs:
            return True
        filled = self._filled[ref.lane]
        if filled and filled + ref.size > self._limits[ref.lane]:
            return False
        self._refs[ref.id] = ref
        self._filled[ref.lane] = filled + ref.size
        self._enqueue(ref)
        return True

    def _enqueue(self, ref: BlockRef) -> None:
        number = next(self._numbers)
        queue = self._queues.setdefault((ref.lane, ref.target), OrderedDict())
        queue[ref.id] = (-number if ref.at_head else number, ref)
        if ref.at_head:
            queue.move_to_end(ref.id, last=False)

    def _first(self, lane: Lane, targets: Iterable[str]) -> BlockRef | None:
        queues = (self._queues.get((lane, target)) for target in targets)
        firsts = [next(iter(queue.values())) for queue in queues if queue]
        return min(firsts, key=lambda placed: placed[0])[1] if firsts else None

    def _take(self, ref: BlockRef) -> BlockRef:
        queue = self._queues[ref.lane, ref.target]
        del queue[ref.id], self._refs[ref.id]
        self._filled[ref.lane] -= ref.size
        if not queue:  # or agents that are gone would leave one each
            del self._queues[ref.lane, ref.target]
        return ref


class _Listener:
    """The unread signals of one listener."""

    def __init__(self, channels: Iterable[str]) -> None:
        self.channels = frozenset(channels)
        self._unread: deque[tuple[str, bytes]] = deque(maxlen=UNREAD_SIGNALS)
        self._some = asyncio.Event()

    def hear(self, channel: str, payload: bytes) -> None:
        self._unread.append((channel, payload))
        self._some.set()

    async def next(self) -> tuple[str, bytes]:
        while not self._unread:
            self._some.clear()
            await self._some.wait()
        return self._unread.popleft()


class MemorySignals:
    """Delivers to all current listeners, in the order in which they started."""

    def __init__(self) -> None:
        self._listeners: dict[_Listener, None] = {}

    async def publish(self, channel: str, payload: bytes) -> None:
        for listener in self._listeners:
            if channel in listener.channels:
                listener.hear(channel, payload)

    async def listen(self, *channels: str) -> AsyncGenerator[tuple[str, bytes], None]:
        listener = _Listener(channels)
        self._listeners[listener] = None
        try:
            while True:
                yield await listener.next()
        finally:
            del self._listeners[listener]


class MemoryLogs:
    """The newest lines of the most recently written streams."""

    def __init__(self) -> None:
        self._streams: OrderedDict[str, deque[tuple[int, dict[str, str]]]] = OrderedDict()
        self._numbers = count(1)

    async def append(self, stream: str, lines: Sequence[Mapping[str, str]]) -> None:
        if not lines:
            return
        kept = self._streams.setdefault(stream, deque(maxlen=LOG_LINES))
        kept.extend((next(self._numbers), dict(line)) for line in lines)
        self._streams.move_to_end(stream)
        if len(self._streams) > LOG_STREAMS:
            self._streams.popitem(last=False)

    async def read(
        self, stream: str, after: str = "0", limit: int = 100
    ) -> list[tuple[str, dict[str, str]]]:
        number, _ = parse_position(after)
        newer = (line for line in self._streams.get(stream, ()) if line[0] > number)
        return [(f"{place}-0", dict(line)) for place, line in islice(newer, max(limit, 0))]


class MemoryBus:
    """A bus for centers of one process."""

    def __init__(self, limits: Mapping[Lane, int], clock: Clock | None = None) -> None:
        self._lanes = MemoryLanes(limits)
        self.lanes: Lanes = self._lanes
        self.signals: Signals = MemorySignals()
        self.logs: LogStream = MemoryLogs()
        self._clock = clock or SystemClock()
        self._turns: dict[str, tuple[str, float]] = {}

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to close: another center of this process may still use it."""

    async def ping(self) -> None:
        """It is available as long as the process runs."""

    async def epoch(self) -> str:
        return f"memory-{self._lanes.generation}"

    async def lead(self, name: str, holder: str, seconds: float) -> bool:
        now = self._clock.monotonic()
        current, until = self._turns.get(name, (holder, now))
        if current != holder and now < until:
            return False
        self._turns[name] = (holder, now + seconds)
        return True

    def describe(self) -> str:
        return "memory://"
