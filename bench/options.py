"""The options of a benchmark. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The defaults are those of the published figures."""

    rounds: int = 5
    kills: int = 50
    requests: int = 10_000
    seed: int = 1
    #: Requests of `backlog`, in each database.
    backlog: int = 10_000_000
    #: Simulated agents of `fleet`.
    agents: int = 1000
    #: Lines that `logs` searches; eight million are a gigabyte.
    lines: int = 8_000_000
    #: Requests of `lists`; a tenth as many runs, half as many jobs as runs.
    listed: int = 1_000_000
    #: Repositories of `polling`; the budget is in proportion.
    repositories: int = 10_000
    #: Minutes of `soak`, in each of its set-ups.
    minutes: float = 12.0
    #: Set-ups of `kill` and `soak`, databases of `backlog`; empty = all (`soak`: the first).
    sets: tuple[str, ...] = ()
