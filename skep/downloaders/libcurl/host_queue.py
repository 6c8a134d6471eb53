"""Per-host politeness of one run: concurrency, and the time between two starts.

Pure, given the time; runs in the thread of a downloader. Hosts alternate, so that a host with a
long queue does not delay the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: Idle hosts are forgotten when there are more of them than this.
_REMEMBERED = 4096


class QueuedHost(Generic[Item]):
    """The queue of one host."""

    __slots__ = ("delay", "next_start", "queued", "running", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Item] = deque()
        self.running = 0
        #: Seconds between two starts.
        self.delay = 0.0
        self.next_start = 0.0
        #: Whether it is in `ready` or `delayed`, at most once.
        self.queued = False


class HostQueue(Generic[Item]):
    """Holds items back until their host may get the next request."""

    __slots__ = ("_at_once", "_count", "_delay", "_delayed", "_hosts", "_paces", "_ready")

    def __init__(self, at_once: int, delay: float) -> None:
        self._at_once = at_once
        self._delay = delay
        self._hosts: dict[str, QueuedHost[Item]] = {}
        self._paces: dict[str, float] = {}
        self._ready: deque[QueuedHost[Item]] = deque()
        self._delayed: list[tuple[float, int, QueuedHost[Item]]] = []
        self._count = 0

    def pace(self, name: str, delay: float) -> None:
        """Set the minimum delay for one host, redirects included. Only this method may be called
        from any thread."""
        if len(self._paces) >= _REMEMBERED:
            self._paces.clear()  # callers set it again with the next request
        self._paces[name] = delay

    def offer(self, name: str, item: Item, *, first: bool = False) -> None:
        """Queue an item; `first` is for requests that have started, such as redirects."""
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = QueuedHost()
            host.delay = self._delay
        if self._paces:
            host.delay = max(self._delay, self._paces.get(name, 0.0))
        if first:
            host.waiting.appendleft(item)
        else:
            host.waiting.append(item)
        self._settle(host)

    def take(self, now: float) -> Item | None:
        """The next item that may start, counted as running; None = none at this time."""
        while self._delayed and self._delayed[0][0] <= now:
            self._ready.append(heappop(self._delayed)[2])
        if not self._ready:
            return None
        host = self._ready.popleft()
        host.queued = False
        host.running += 1
        host.next_start = now + host.delay if host.delay else 0.0
        item = host.waiting.popleft()
        self._settle(host)
        return item

    def leave(self, name: str, now: float) -> None:
        """A running item of this host has ended."""
        host = self._hosts[name]
        host.running -= 1
        if host.waiting:
            self._settle(host)
        elif not host.running:
            self._forget(name, now)

    def next_due(self) -> float | None:
        """When to check again without an event."""
        return self._delayed[0][0] if self._delayed else None

    def drain(self) -> list[Item]:
        """All waiting items; the queue is empty afterwards."""
        items = [item for host in self._hosts.values() for item in host.waiting]
        self._hosts.clear()
        self._ready.clear()
        self._delayed.clear()
        return items

    def withdraw(self, wanted: Callable[[Item], bool]) -> list[Item]:
        """Remove these from the queues; running items continue."""
        taken: list[Item] = []
        for host in self._hosts.values():
            taken += [item for item in host.waiting if wanted(item)]
            host.waiting = deque(item for item in host.waiting if not wanted(item))
            host.queued = host.queued and bool(host.waiting)
        self._ready = deque(host for host in self._ready if host.queued)
        self._delayed = [entry for entry in self._delayed if entry[2].queued]
        heapify(self._delayed)
        return taken

    def _settle(self, host: QueuedHost[Item]) -> None:
        if host.queued or not host.waiting or host.running >= self._at_once:
            return
        host.queued = True
        if host.next_start:
            self._count += 1
            heappush(self._delayed, (host.next_start, self._count, host))
        else:
            self._ready.append(host)

    def _forget(self, name: str, now: float) -> None:
        """Forget idle hosts. A host must be remembered until its delay is over."""
        if not self._hosts[name].delay:
            del self._hosts[name]
        elif len(self._hosts) > _REMEMBERED:
            for other, host in list(self._hosts.items()):
                if not host.waiting and not host.running and host.next_start <= now:
                    del self._hosts[other]
