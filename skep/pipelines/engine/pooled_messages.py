"""Translates between outcomes of the engine and messages of the pool. Pure.

An outcome that needs the pool becomes a new message, or settles the one that came from the pool.
"""

from __future__ import annotations

from skep.model.pipelines.pool import NewPooled, Pooled, PoolState, Settled
from skep.pipelines.engine.message import Arrived
from skep.pipelines.engine.outcomes import Kind, Outcome

_STAY = frozenset({Kind.DELAYED, Kind.FAILED, Kind.DEAD})


def arrived_again(one: Pooled) -> Arrived:
    """A message of the pool, as the engine takes it."""
    return Arrived(one.body, one.input, one.errors, one.tries, one.expires, one.done)


def for_the_pool(
    arrived: Arrived, origin: str, outcome: Outcome, body_limit: int
) -> NewPooled | None:
    """What the pool must store of a message from an input; None when it has left the pipeline.

    A dead message may be too long for any stage; its beginning is kept for people.
    """
    if outcome.kind not in _STAY:
        return None
    state = PoolState.DEAD if outcome.kind is Kind.DEAD else PoolState.WAITING
    body = arrived.body[:body_limit] if state is PoolState.DEAD else arrived.body
    return NewPooled(
        *(origin, arrived.input, body, state, outcome.due, outcome.expires, outcome.errors),
        *(outcome.done, outcome.stage, outcome.reason),
    )


def settled(one: Pooled, outcome: Outcome) -> Settled:
    """What becomes of a message that came from the pool."""
    if outcome.kind not in _STAY:
        return Settled(one.id, one.token, "done")
    return Settled(
        one.id,
        one.token,
        "dead" if outcome.kind is Kind.DEAD else "again",
        *(outcome.due, outcome.expires, outcome.errors),
        *(outcome.done, outcome.stage, outcome.reason),
    )
