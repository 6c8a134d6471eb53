"""Every state and every legal change, one table per noun. Pure; used by all processes.

`docs/why/states.md` draws these tables and a test compares the two.
"""

from __future__ import annotations

import warnings
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from skep.model.failures.failure_class import FailureClass

__all__ = [
    "BLOCK_CHANGES",
    "CLAIMABLE",
    "ENDED_RUN_STATES",
    "FINAL_STATES",
    "REQUEST_CHANGES",
    "RUN_CHANGES",
    "BlockState",
    "FailureClass",
    "RequestState",
    "RunState",
]


class RequestState(IntEnum):
    """The state of an accepted request. The ledger counts each.

    In a request's row QUEUED means "in a block"; whether that block is leased is written in
    the block alone, because a request row is not rewritten at every step.
    """

    WAITING = 0
    QUEUED = 1
    LEASED = 2
    DELAYED = 3
    DONE = 4
    DEAD = 5
    CANCELLED = 6
    EXPIRED = 7


FINAL_STATES = frozenset(
    {RequestState.DONE, RequestState.DEAD, RequestState.CANCELLED, RequestState.EXPIRED}
)

REQUEST_CHANGES: dict[RequestState, frozenset[RequestState]] = {
    RequestState.WAITING: frozenset(
        {
            RequestState.QUEUED,
            RequestState.DELAYED,
            RequestState.CANCELLED,
            RequestState.EXPIRED,
        }
    ),
    RequestState.QUEUED: frozenset(
        {
            RequestState.LEASED,
            RequestState.DELAYED,
            RequestState.CANCELLED,
            RequestState.EXPIRED,
        }
    ),
    RequestState.LEASED: frozenset(
        {
            RequestState.QUEUED,
            RequestState.DELAYED,
            RequestState.DONE,
            RequestState.DEAD,
            RequestState.CANCELLED,
        }
    ),
    RequestState.DELAYED: frozenset(
        {RequestState.WAITING, RequestState.CANCELLED, RequestState.EXPIRED}
    ),
    RequestState.DONE: frozenset(),
    RequestState.DEAD: frozenset({RequestState.WAITING, RequestState.CANCELLED}),
    RequestState.CANCELLED: frozenset(),
    RequestState.EXPIRED: frozenset(),
}


class BlockState(IntEnum):
    """The states of a block, with their stored numbers."""

    READY = 1
    USING = 2
    SUCCESS = 4
    FAILED = 8
    RETRY = 16


CLAIMABLE = (BlockState.READY, BlockState.RETRY)

BLOCK_CHANGES: dict[BlockState, frozenset[BlockState]] = {
    BlockState.READY: frozenset({BlockState.USING, BlockState.FAILED}),
    BlockState.USING: frozenset({BlockState.SUCCESS, BlockState.FAILED, BlockState.RETRY}),
    BlockState.RETRY: frozenset({BlockState.USING, BlockState.FAILED}),
    BlockState.SUCCESS: frozenset(),
    BlockState.FAILED: frozenset(),
}


class RunState(StrEnum):
    """A run accepts and dispatches requests while it is running.

    A failed run stops like a paused one, with a reason; it can be continued.
    """

    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    FINISHED = "finished"
    CANCELLED = "cancelled"


#: No process works for a run in these states; a finished run can be continued.
ENDED_RUN_STATES = frozenset({RunState.FINISHED, RunState.CANCELLED})

RUN_CHANGES: dict[RunState, frozenset[RunState]] = {
    RunState.RUNNING: frozenset(
        {RunState.PAUSED, RunState.FAILED, RunState.FINISHED, RunState.CANCELLED}
    ),
    RunState.PAUSED: frozenset({RunState.RUNNING, RunState.FAILED, RunState.CANCELLED}),
    RunState.FAILED: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.FINISHED: frozenset({RunState.RUNNING}),
    RunState.CANCELLED: frozenset(),
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The names of earlier releases; they work for one more release."""
        if new := {"Failure": "FailureClass"}.get(name):
            warnings.warn(f"{__name__}.{name} is now {new}", DeprecationWarning, stacklevel=2)
            globals()[name] = globals()[new]  # it warns once
            return globals()[new]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
