"""The figures of a run, counted from its reports. Pure data; see also the ledger.

They are for display: only the ledger must add up.
"""

from __future__ import annotations

import msgspec


class RunFigures(msgspec.Struct, frozen=True):
    """Answers of the run's agents so far. Retries count: one request can have many answers."""

    #: Answers of agents, successful and failed.
    answers: int = 0
    #: Answers per second over the last minute.
    rate: float = 0.0
    #: Bytes from and to the hosts.
    received: int = 0
    sent: int = 0
    #: Answers by HTTP status, failures by their class.
    statuses: dict[str, int] = msgspec.field(default_factory=dict)
    failures: dict[str, int] = msgspec.field(default_factory=dict)
    #: Answers by agent.
    agents: dict[str, int] = msgspec.field(default_factory=dict)
