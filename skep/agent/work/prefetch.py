"""Decides how many blocks an agent leases: pure rules, shared with simulations.

An agent leases early enough that its downloaders never idle, and no more than it will start within
about a second, so that blocks do not wait at one agent while others are idle.
"""

from __future__ import annotations

from math import ceil, exp

from skep.wire.messages import LEASE_BLOCKS_MAX

#: Seconds of work that are kept ready in addition to the blocks of `ahead`.
HORIZON = 0.5
#: Bytes of unreported frames above which nothing is started or leased.
UNREPORTED_LIMIT = 64 * 2**20
#: Assumed requests in a block, until the first lease.
TYPICAL_BLOCK = 100.0


def requests_wanted(active: int, concurrency: int, ahead: float, rate: float) -> float:
    """Number of requests that should wait in addition to the running ones; `ahead` counts requests.

    All running downloads may end at the same time, and the next lease call takes time: with
    twice the concurrency in stock, and a call at half of it, there is a successor for each.
    """
    return max(concurrency - active, 0) + max(ahead, 2 * concurrency, rate * HORIZON)


def blocks_wanted(queued: int, target: float, block_size: float) -> int:
    """Blocks to lease now: none while more than half of the target waits.

    Leasing at the half-way mark makes few large calls instead of many small ones.
    """
    if queued > target / 2:
        return 0
    return max(1, min(LEASE_BLOCKS_MAX, ceil((target - queued) / block_size)))


class DownloadRate:
    """Moving averages: requests per second, and the size of a block."""

    def __init__(self, now: float, memory: float = 1.0) -> None:
        self._memory = memory
        self._at = now
        self._finished = 0
        self.rate = 0.0
        self.block_size = TYPICAL_BLOCK
        self._blocks_seen = 0

    def note_finished(self, finished: int, now: float) -> None:
        """`finished` is a count since the start; calls within 50 ms are joined."""
        passed = now - self._at
        if passed < 0.05:  # noqa: PLR2004  (see the docstring)
            return
        keep = exp(-passed / self._memory)
        self.rate = keep * self.rate + (1 - keep) * (finished - self._finished) / passed
        self._at, self._finished = now, finished

    def note_block(self, size: int) -> None:
        """A block of that size was leased."""
        weight = 0.2 if self._blocks_seen else 1.0
        self.block_size = max(1.0, self.block_size + weight * (size - self.block_size))
        self._blocks_seen += 1
