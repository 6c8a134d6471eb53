"""What centers ask of a store about things that wait; a part of `store/ports.py`.

Run by centers only. Reading alone, and never many rows, however many wait.
"""

from __future__ import annotations

from typing import Protocol

from skep.store.wait_facts import BlockWait, HostFacts, RequestWait, RunWait


class Waits(Protocol):
    """Asked for people who wonder why something does not run.

    Each is one look that reads few rows, by indexes, however many there are; it changes
    nothing.
    """

    async def request(self, request_id: int) -> RequestWait:
        """Raises NotFound."""

    async def block(self, block_id: int) -> BlockWait:
        """Raises UnknownBlock."""

    async def run(self, run_id: str) -> RunWait:
        """Raises UnknownRun."""

    async def site(self, host: str) -> HostFacts:
        """Also of a host that nobody knows, which says so."""
