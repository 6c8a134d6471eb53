"""The queue of a run: add requests, read finished ones by block.

Run by centers. Accepted requests are synced to disk before the answer. Reading changes
nothing: a block stays until it is marked as collected.
"""

from __future__ import annotations

from skep.center.api.path_names import RUN_NAMES, run_name
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import Conflict, DiskFull, InvalidInput, UnknownBlock, UnknownRun
from skep.model.request import Accepted
from skep.wire.api.queue import (
    ADD_REQUESTS,
    LIST_FINISHED_REQUESTS,
    MARK_BLOCKS_COLLECTED,
    SUBMIT_REQUESTS,
    Collect,
    Collected,
    Finished,
)
from skep.wire.api.route import Route

#: Number of unknown blocks that an error names.
NAMED = 5


async def put(call: Call) -> Accepted:
    """Accept requests; they are on disk when the answer is sent."""
    (run,) = call.path.values()
    return await call.services.intake.accept(run_name(run), call.body, call.audit.take())


async def finished(call: Call) -> Finished:
    """Read finished requests. Reading changes nothing; `collected` does."""
    blocks = call.services.store.blocks
    return Finished(await blocks.finished(run_name(call.path["identity"]), call.query.limit))


async def collected(call: Call) -> Collected:
    """Mark blocks as read."""
    message: Collect = call.body
    run = run_name(call.path["identity"])
    blocks = call.services.store.blocks
    if strange := await blocks.strange(run, message.blocks):
        numbers = ", ".join(map(str, strange[:NAMED])) + (" and more" if strange[NAMED:] else "")
        raise UnknownBlock(
            f"run {run} has no block {numbers}; nothing was marked. GET /requestqueue/{run} lists "
            "the blocks that can be collected"
        )
    return Collected(await blocks.collect(run, message.blocks))


_ALL_OR_NOTHING = (
    "All or nothing: if one request is not valid, the whole batch is refused, and the error names "
    "its position. Sending a batch again is safe, with or without an `Idempotency-Key`: a run "
    "has one request per fingerprint, and the answer counts those that it already has as "
    "`known` (requests with `again` are always new). The requests are on disk when the answer "
    "is sent."
)
_ALIAS = " The older path of `POST /api/v1/runs/{run}/requests`; both are supported."


def _adding(route: Route[Accepted], summary: str, notes: str) -> Endpoint:
    return Endpoint(
        route,
        Role.OPERATOR,
        put,
        summary,
        errors=(InvalidInput, UnknownRun, Conflict, DiskFull),
        tag="runs",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
        notes=notes,
        audits_state=False,
    )


ENDPOINTS = (
    _adding(ADD_REQUESTS, "Add requests to a run", _ALL_OR_NOTHING),
    _adding(SUBMIT_REQUESTS, "Add requests to the queue of a run", _ALL_OR_NOTHING + _ALIAS),
    Endpoint(
        LIST_FINISHED_REQUESTS,
        Role.VIEWER,
        finished,
        "Read finished requests by block",
        errors=(InvalidInput, UnknownRun),
        tag="runs",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
    ),
    Endpoint(
        MARK_BLOCKS_COLLECTED,
        Role.OPERATOR,
        collected,
        "Mark finished blocks as read",
        errors=(InvalidInput, UnknownRun, UnknownBlock),
        tag="runs",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
        audited=False,
    ),
)
