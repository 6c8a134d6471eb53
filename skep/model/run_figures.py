"""The figures of a run, as its reports were counted. Pure data; see also the ledger.

They are for people: what must add up is the ledger, not these.
"""

from __future__ import annotations

import msgspec


class RunFigures(msgspec.Struct, frozen=True):
    """What the run's agents answered so far. Retries count: a request may answer often."""

    #: Answers of agents, good and bad.
    answers: int = 0
    #: Answers per second over the last minute.
    rate: float = 0.0
    #: Bytes from and to the sites.
    received: int = 0
    sent: int = 0
    #: Answers by HTTP status, failures by their kind.
    statuses: dict[str, int] = msgspec.field(default_factory=dict)
    failures: dict[str, int] = msgspec.field(default_factory=dict)
    #: Agents that answered, and how often.
    agents: dict[str, int] = msgspec.field(default_factory=dict)
