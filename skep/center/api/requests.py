"""Single requests and blocks, with their history and their archived bytes.

What was downloaded is hostile until proven otherwise: it leaves as an attachment of a
type that no browser renders.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from skep.archive.frames import read_records, split_response
from skep.center.api.names import NUMBERS, number
from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint, Raw
from skep.errors import ArchiveDamaged, InvalidInput, Malformed, NotFound, UnknownBlock
from skep.model.attempt import Attempt
from skep.model.block import BlockChange, BlockView
from skep.store.facts import RequestView

#: The states of `model/states.py`, as words.
StateWord = Literal[
    "waiting", "queued", "leased", "delayed", "done", "dead", "cancelled", "expired"
]


class RequestLine(msgspec.Struct):
    """A request as people see it."""

    id: int
    run: str
    uri: str
    priority: int
    state: StateWord
    failures: int
    #: The block that it is, or ended, in.
    block: int | None
    created_at: float
    #: A delayed request waits for this moment.
    not_before: float


class RequestDetail(msgspec.Struct):
    """A request and every attempt at it, oldest first."""

    request: RequestLine
    attempts: list[Attempt]


class BlockDetail(msgspec.Struct):
    """A block and every change of its state, oldest first."""

    block: BlockView
    history: list[BlockChange]


async def show_request(call: Call) -> RequestDetail:
    """A request with its attempts."""
    requests = call.services.store.requests
    wanted = number(call.path["request"])
    return RequestDetail(line_of(await requests.get(wanted)), await requests.attempts(wanted))


def line_of(view: RequestView) -> RequestLine:
    """In the words of the API."""
    told = {**msgspec.structs.asdict(view), "state": view.state.name.lower()}
    return msgspec.convert(told, RequestLine)


async def show_body(call: Call) -> Raw:
    """The newest body that was kept for a request, as bytes."""
    data = await _archived(call)
    try:
        bodies = [split_response(r).body for r in read_records(data) if r.type == "response"]
    except Malformed as error:
        raise ArchiveDamaged(
            f"the archived record of request {call.path['request']} cannot be read: {error.detail}"
        ) from error
    for body in bodies:
        return _attachment(body, "application/octet-stream", "body.bin")
    raise NotFound("the archive has no response for this request")


async def show_record(call: Call) -> Raw:
    """The newest WARC records of a request, as they lie in the archive (zstd frames)."""
    return _attachment(await _archived(call), "application/zstd", "record.warc.zst")


async def show_block(call: Call) -> BlockDetail:
    """A block with its history."""
    blocks = call.services.store.blocks
    wanted = number(call.path["block"])
    return BlockDetail(await blocks.get(wanted), await blocks.history(wanted))


async def _archived(call: Call) -> bytes:
    wanted = number(call.path["request"])
    await call.services.store.requests.get(wanted)
    kept = [a for a in await call.services.store.requests.attempts(wanted) if a.length]
    if not kept:
        raise NotFound(f"no bytes were kept for request {wanted}")
    last = kept[-1]
    return await call.services.archive.read(last.segment, last.offset, last.length)


def _attachment(content: bytes, kind: str, name: str) -> Raw:
    return Raw(content, kind, {"content-disposition": f'attachment; filename="{name}"'})


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/requests/{request}",
        Role.VIEWER,
        show_request,
        "Show a request and its attempts",
        gives=RequestDetail,
        errors=(NotFound, InvalidInput),
        tag="requests",
        parameters=NUMBERS,
    ),
    Endpoint(
        "GET",
        "/api/v1/requests/{request}/body",
        Role.VIEWER,
        show_body,
        "The archived body of a request",
        errors=(NotFound, InvalidInput),
        media="application/octet-stream",
        tag="requests",
        parameters=NUMBERS,
    ),
    Endpoint(
        "GET",
        "/api/v1/requests/{request}/record",
        Role.VIEWER,
        show_record,
        "The archived WARC records of a request",
        errors=(NotFound, InvalidInput),
        media="application/zstd",
        tag="requests",
        parameters=NUMBERS,
    ),
    Endpoint(
        "GET",
        "/api/v1/blocks/{block}",
        Role.VIEWER,
        show_block,
        "Show a block and its history",
        gives=BlockDetail,
        errors=(UnknownBlock, InvalidInput),
        tag="requests",
        parameters=NUMBERS,
    ),
)
