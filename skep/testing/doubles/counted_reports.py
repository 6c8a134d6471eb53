"""Reports of blocks as a center counts them, for tests of figures."""

from __future__ import annotations

from skep.model.block import BlockReport
from skep.model.hosts.host import SiteNote
from skep.model.request import Outcome
from skep.store.ports.blocks import SettleResult


def report(
    run: str, done: int, failed: int = 0, host: str = "h"
) -> tuple[BlockReport, SettleResult]:
    """A stored report of one host; the failed requests are dead."""
    outcomes = [Outcome(n, status=200, elapsed_us=1500, received=100) for n in range(done)]
    outcomes += [Outcome(n + done, failure="timeout") for n in range(failed)]
    sites = [SiteNote(host, done + failed, failed)]
    return (
        BlockReport(1, 1, outcomes, sites=sites),
        SettleResult(1, "stored", done + failed, run, failed),
    )
