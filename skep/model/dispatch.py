"""The result of a dispatch, as it is logged and shown. Pure data; used by centers and the CLI.

A row records what happened; no decision may depend on it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

#: alert: a lane is full and requests wait. success: requests went into lanes. failed: an error.
DispatchKind = Literal["alert", "success", "failed"]
#: The order in which the waiting requests of a run are taken.
DispatchOrder = Literal["priority", "host", "both"]


class DispatchRow(msgspec.Struct, frozen=True):
    """What one center dispatched of one run into one lane, within some seconds."""

    at: float
    kind: DispatchKind
    run: str
    job: str
    lane: str
    reason: str
    #: Requests and blocks that went into the lane.
    size: int = 0
    blocks: int = 0
    #: Number of dispatches summed up in this row, and the seconds that they took.
    rounds: int = 1
    seconds: float = 0.0
    #: Name of the center, and of its machine.
    center: str = ""
    host: str = ""
    #: Its number in the log; 0 = it was not stored.
    id: int = 0


class DispatchReport(msgspec.Struct, frozen=True):
    """The result of one round, or with `dry_run` the result it would have."""

    rows: list[DispatchRow]
    size: int
    seconds: float
    center: str
    host: str
    dry_run: bool = False
    #: Requests that were parked, because their host must not be contacted now.
    parked: int = 0
