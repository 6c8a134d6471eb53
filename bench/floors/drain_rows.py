"""Shared by both floors of `drain`: the rows of a leased batch, and the time measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from bench.stopwatch import Stopwatch

AGENT = "agent-1"
BLOCKS = 20
LEASED_DETAIL = f"leased to {AGENT}"
DONE_DETAIL = "every request was downloaded"
#: Numbers of the states in the rows.
QUEUED, LEASED, DONE = 1, 2, 4
USING, SUCCESS = 2, 4
ATTEMPT_COLUMNS = (
    "request", "block", "token", "agent", "at", "failure", "status", "detail", "elapsed_us",
    "sent", "received", "address", "final_uri", "segment", "offset", "length",
)  # fmt: skip
#: failure, status, detail, elapsed_us, sent, received, address, final_uri, and no stored bytes.
SUCCEEDED = ("", 200, "", 1500, 120, 10_240, "127.0.0.1", "", "", 0, 0)


#: Seconds that a run gives an agent to answer: `answer_seconds` and `time_limit` of a run.
PATIENCE = 900.0 + 120.0
#: Seconds in which answers are counted together for a run's rate.
SLOT = 10


@dataclass(slots=True)
class Lease:
    """One leased block."""

    block: int
    token: int
    requests: list[int]


Claimed = list[tuple[int, int, bytes]]


def lease_of(block: int, token: int, body: bytes) -> Lease:
    return Lease(block, token, [work[0] for work in msgspec.msgpack.decode(body)])


def drain(
    claim: Callable[[float], Claimed],
    settle: Callable[[list[Lease], float], None],
    watch: Stopwatch,
) -> int:
    """Returns the requests. As for ours, reading the bodies is not timed: agents do that."""
    done = 0
    while True:
        with watch:
            claimed = claim(time.time())
        if not claimed:
            return done
        leases = [lease_of(*one) for one in claimed]
        with watch:
            settle(leases, time.time())
        done += sum(len(lease.requests) for lease in leases)


def attempt_rows(leases: list[Lease], now: float) -> list[tuple[object, ...]]:
    """Sixteen columns for each request, as in our store."""
    return [
        (number, lease.block, lease.token, AGENT, now, *SUCCEEDED)
        for lease in leases
        for number in lease.requests
    ]


def figure_rows(count: int, now: float) -> list[tuple[str, int]]:
    """The figures of a run that these answers add, as in our store."""
    return [
        (f"agent.{AGENT}", count),
        ("bytes.received", 10_240 * count),
        ("bytes.sent", 120 * count),
        (f"rate.{int(now // SLOT):012d}", count),
        ("status.200", count),
    ]
