"""What a person may ask of a bench. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Defaults are those of the published figures."""

    rounds: int = 5
    kills: int = 50
    requests: int = 10_000
    seed: int = 1
    #: Requests of the backlog bench, in each database.
    backlog: int = 10_000_000
    #: Simulated agents of the fleet bench.
    agents: int = 1000
    #: Set-ups of the kill bench and databases of the backlog bench; empty takes all.
    sets: tuple[str, ...] = ()
