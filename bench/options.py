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
    #: Lines that the logs bench searches; eight million are a gigabyte.
    lines: int = 8_000_000
    #: Minutes of a soak, in each of its set-ups.
    minutes: float = 12.0
    #: Set-ups of kill and soak, databases of backlog; empty takes all (soak: the first).
    sets: tuple[str, ...] = ()
