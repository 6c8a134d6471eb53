"""What a dispatch did, as it is logged and shown. Pure data; centers and the CLI use it.

A row says what happened; it must never be what decides.
"""

from __future__ import annotations

from typing import Literal

import msgspec

#: alert: a full lane, the requests wait. success: requests went into lanes. failed: an error.
DispatchKind = Literal["alert", "success", "failed"]
#: In which order the waiting requests of a run are taken.
DispatchOrder = Literal["priority", "host", "both"]


class DispatchRow(msgspec.Struct, frozen=True):
    """What one center dispatched of one run into one lane, in a stretch of some seconds."""

    at: float
    kind: DispatchKind
    run: str
    job: str
    lane: str
    reason: str
    #: Requests and blocks that went into the lane.
    size: int = 0
    blocks: int = 0
    #: Dispatches that are summed up in this row, and the seconds that they took.
    rounds: int = 1
    seconds: float = 0.0
    #: The center's name, and its machine's.
    center: str = ""
    host: str = ""
    #: Its place in the log; 0 = it was not kept.
    id: int = 0


class DispatchReport(msgspec.Struct, frozen=True):
    """One round: what it did, or with `dry_run` what it would do."""

    rows: list[DispatchRow]
    size: int
    seconds: float
    center: str
    host: str
    dry_run: bool = False
    #: Requests that were set aside, because their host is not to be asked now.
    parked: int = 0
