"""Series: the names of figures over time, and one stored row of them. Pure data.

A row holds every series of one scope (all runs, or one run) in one interval of time, so that a
center writes few rows however many series there are.
"""

from __future__ import annotations

from typing import Literal

import msgspec

#: (sum, number of samples). A rate is the sum by time; a level is the sum by samples.
Cell = tuple[float, int]
#: Series name -> label -> value.
Cells = dict[str, dict[str, Cell]]
SeriesKind = Literal["rate", "level", "latency"]

#: The label that has the sum of all labels beyond the limit.
OTHER = "other"
#: Labels of one series in one row, `other` not counted.
LABELS = 20
LABEL_LENGTH = 100

ACCEPTED = "requests.accepted"
DONE = "requests.done"
FAILED = "requests.failed"
DEAD = "requests.dead"
STATUS = "answers.status"
FAILURE = "answers.failure"
RECEIVED = "bytes.received"
SENT = "bytes.sent"
LATENCY = "latency"
HOSTS = "hosts.requests"
LEASED = "blocks.leased"
LEDGER = "ledger"
LANES = "lanes.depth"
LANES_FILL = "lanes.fill"
AGENTS = "agents"
DISK = "disk.free"


class SeriesInfo(msgspec.Struct, frozen=True):
    """A series that charts and alert rules can name."""

    #: Name of the series.
    name: str
    kind: SeriesKind
    #: Unit of its values.
    unit: str
    text: str
    #: What its labels are; empty = it has none.
    label: str = ""
    #: Whether it exists for single runs, too.
    of_runs: bool = False


KNOWN: tuple[SeriesInfo, ...] = (
    SeriesInfo(ACCEPTED, "rate", "requests/s", "Requests accepted"),
    SeriesInfo(DONE, "rate", "requests/s", "Requests done", of_runs=True),
    SeriesInfo(FAILED, "rate", "answers/s", "Failed attempts", of_runs=True),
    SeriesInfo(DEAD, "rate", "requests/s", "Requests that became dead", of_runs=True),
    SeriesInfo(STATUS, "rate", "answers/s", "Answers by HTTP status", "status", of_runs=True),
    SeriesInfo(FAILURE, "rate", "answers/s", "Failed attempts by class", "failure", of_runs=True),
    SeriesInfo(RECEIVED, "rate", "bytes/s", "Bytes from hosts", of_runs=True),
    SeriesInfo(SENT, "rate", "bytes/s", "Bytes to hosts", of_runs=True),
    SeriesInfo(LATENCY, "latency", "s", "Duration of downloads", "quantile", of_runs=True),
    SeriesInfo(HOSTS, "rate", "answers/s", "Answers of the busiest hosts", "host", of_runs=True),
    SeriesInfo(LEASED, "rate", "blocks/s", "Blocks leased to agents"),
    SeriesInfo(LEDGER, "level", "requests", "Requests by state", "state"),
    SeriesInfo(LANES, "level", "requests", "Requests in the lanes", "lane"),
    SeriesInfo(LANES_FILL, "level", "share", "Requests in a lane by its limit", "lane"),
    SeriesInfo(AGENTS, "level", "agents", "Agents that are alive or dead", "state"),
    SeriesInfo(DISK, "level", "bytes", "Free bytes of the fullest disk", "center"),
)
BY_NAME: dict[str, SeriesInfo] = {info.name: info for info in KNOWN}


class SeriesRow(msgspec.Struct, frozen=True):
    """The series of one scope in [at, at + step)."""

    step: int
    at: int
    #: A run, or empty for all runs.
    run: str
    #: Unique for one flush of one center process; empty in rolled-up rows.
    writer: str
    cells: Cells
