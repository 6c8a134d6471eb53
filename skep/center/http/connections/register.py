"""Counts all connections of a center and closes those without a token or past a deadline.

One task checks all of them; a timer for each would slow down every call. Above a limit, the
register closes the connection that has waited longest without a token and has no active
call, so that new callers can connect: agents send their token with their first bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from time import monotonic

from skep.center.http.connections.bounds import Bounds, Refusals
from skep.center.http.connections.protocol import BoundedProtocol

log = logging.getLogger(__name__)

#: Seconds between two checks.
LOOK_EVERY = 1.0
#: Seconds for which a new connection does not count for its address: a thousand agents that
#: connect at once from behind one router have sent their tokens by then.
GRACE = 1.0
#: Seconds between two log lines about refused connections.
TELL_EVERY = 60.0


class Register:
    """`count` is called with the reason of each refusal."""

    def __init__(self, bounds: Bounds, count: Callable[[str], None]) -> None:
        self._bounds = bounds
        self._count = count
        self._open: set[BoundedProtocol] = set()
        #: Connections without a token, oldest first.
        self._anonymous: dict[BoundedProtocol, None] = {}
        self._refusals = Refusals(bounds)
        self._untold: Counter[str] = Counter()
        self._told_at = -TELL_EVERY
        self._pause = min(LOOK_EVERY, bounds.head_seconds / 4, bounds.body_seconds / 4)

    def protocol(self) -> type[BoundedProtocol]:
        """The protocol class whose connections are counted here."""
        parts = {"register": self, "bounds": self._bounds, "refusals": self._refusals}
        return type("CenterProtocol", (BoundedProtocol,), parts)

    # -- called by connections

    def opened(self, connection: BoundedProtocol) -> None:
        self._open.add(connection)
        self._anonymous[connection] = None
        if len(connection.connections) <= self._bounds.connections:
            return
        oldest = next((one for one in self._anonymous if not one.answering), connection)
        self._anonymous.pop(oldest, None)
        oldest.refuse(self._refusals.full)

    def known(self, connection: BoundedProtocol) -> None:
        self._anonymous.pop(connection, None)

    def closed(self, connection: BoundedProtocol) -> None:
        self._open.discard(connection)
        self._anonymous.pop(connection, None)

    def refused(self, reason: str) -> None:
        self._count(reason)
        self._untold[reason] += 1

    # -- periodic checks

    async def watch(self) -> None:
        """Check all connections until cancelled."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(self._pause)
            now = loop.time()
            # If this process was suspended, data that arrived meanwhile is not read yet.
            self._look(now, max(self._pause, now - before - self._pause))
            before = now

    def _look(self, now: float, late: float) -> None:
        stopped = late if late > 2 * self._pause else 0.0
        for connection in list(self._open):
            connection.until += stopped
            connection.look(now, self._pause)
        self._look_at_addresses(now)
        self._tell()

    def _look_at_addresses(self, now: float) -> None:
        if len(self._anonymous) <= self._bounds.anonymous:
            return
        waiting: defaultdict[str, list[BoundedProtocol]] = defaultdict(list)
        for one in self._anonymous:
            if not one.answering and now - one.opened_at > GRACE:
                waiting[one.address].append(one)
        for connections in waiting.values():
            for one in connections[: max(0, len(connections) - self._bounds.anonymous)]:
                self._anonymous.pop(one, None)
                self.refused("address")
                one.transport.close()

    def _tell(self) -> None:
        if not self._untold or monotonic() - self._told_at < TELL_EVERY:
            return
        reasons = ", ".join(f"{reason} {count}" for reason, count in self._untold.most_common())
        log.warning("refused connections: %s; see the center.* limits in the settings", reasons)
        self._untold.clear()
        self._told_at = monotonic()
