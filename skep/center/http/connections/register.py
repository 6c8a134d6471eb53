"""All connections of a center: how many there are, which have no token, whose time is over.

One task looks at all of them; a timer for each would cost every call. Above a bound the
connection goes that has waited longest without a token and is not being answered, so that
new callers come in: agents send their token with their first bytes.
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

#: Seconds between two looks.
LOOK_EVERY = 1.0
#: Seconds for which a new connection is not counted against its address: a thousand agents
#: that connect at once from behind one router have shown their tokens by then.
GRACE = 1.0
#: Seconds between two log lines about refused connections.
TELL_EVERY = 60.0


class Register:
    """`count` is told the reason of each refusal."""

    def __init__(self, bounds: Bounds, count: Callable[[str], None]) -> None:
        self._bounds = bounds
        self._count = count
        self._open: set[BoundedProtocol] = set()
        #: Connections without a token, in the order in which they came.
        self._anonymous: dict[BoundedProtocol, None] = {}
        self._refusals = Refusals(bounds)
        self._untold: Counter[str] = Counter()
        self._told_at = -TELL_EVERY
        self._pause = min(LOOK_EVERY, bounds.head_seconds / 4, bounds.body_seconds / 4)

    def protocol(self) -> type[BoundedProtocol]:
        """The class of connections that are counted here."""
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

    # -- the look at all of them

    async def watch(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(self._pause)
            now = loop.time()
            # After a stop of this process what was sent meanwhile has not been read yet.
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
        log.warning("connections refused: %s; see center.* limits in the settings", reasons)
        self._untold.clear()
        self._told_at = monotonic()
