"""What runs call: put requests in, read finished ones back, by block.

Run by centers. What was accepted is synced before the answer; reading changes nothing, a block
stays until it was collected.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.center.api.names import RUN_NAMES, run_name
from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.errors import Conflict, DiskFull, InvalidInput, UnknownBlock, UnknownRun
from skep.jobs.validate import Offered
from skep.store.facts import Accepted, FinishedBlock

#: Unknown blocks that an error names.
NAMED = 5
BlockId = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Page(msgspec.Struct):
    """How many blocks to read."""

    #: Number of blocks to read.
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


class Finished(msgspec.Struct):
    """Blocks that ended and that the run has not collected yet."""

    blocks: list[FinishedBlock]


class Collect(msgspec.Struct, forbid_unknown_fields=True):
    """Blocks that the run has read and need not see again."""

    blocks: Annotated[list[BlockId], Meta(max_length=10_000)]


class Collected(msgspec.Struct):
    """How many were marked by this call."""

    blocks: int


async def put(call: Call) -> Accepted:
    """Accept requests; they are on disk when this is answered."""
    accepted = await call.services.intake.accept(run_name(call.path["identity"]), call.body)
    call.services.metrics.accepted.inc(accepted.new)
    return accepted


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


ENDPOINTS = (
    Endpoint(
        "POST",
        "/requestqueue/{identity}",
        Role.OPERATOR,
        put,
        "Put requests into a run's queue",
        list[Offered],
        Accepted,
        status=202,
        errors=(InvalidInput, UnknownRun, Conflict, DiskFull),
        tag="runs",
        parameters=RUN_NAMES,
        notes="All or nothing: one request that is not valid refuses the whole batch, and the "
        "error names its place. Sending a batch again is safe, with or without an "
        "`Idempotency-Key`: a run keeps one request per fingerprint, and the answer counts "
        "those that were there already as `known` (requests with `again` are always new).",
    ),
    Endpoint(
        "GET",
        "/requestqueue/{identity}",
        Role.VIEWER,
        finished,
        "Read finished requests by block",
        gives=Finished,
        asks=Page,
        errors=(InvalidInput, UnknownRun),
        tag="runs",
        parameters=RUN_NAMES,
    ),
    Endpoint(
        "POST",
        "/requestqueue/{identity}/collected",
        Role.OPERATOR,
        collected,
        "Mark finished blocks as read",
        Collect,
        Collected,
        errors=(InvalidInput, UnknownRun, UnknownBlock),
        tag="runs",
        parameters=RUN_NAMES,
    ),
)
