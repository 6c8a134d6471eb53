"""Single requests and blocks, with their history and their archived bytes.

What was downloaded is hostile until proven otherwise: it leaves as an attachment of a
type that no browser renders.
"""

from __future__ import annotations

import msgspec

from skep.archive.frames import read_records, split_response
from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint, Raw
from skep.errors import InvalidInput, NotFound, UnknownBlock
from skep.model.attempt import Attempt
from skep.model.block import BlockChange, BlockView
from skep.store.ports import RequestView

_ID_DIGITS = 18


class RequestDetail(msgspec.Struct):
    """A request and every attempt at it, oldest first."""

    request: RequestView
    attempts: list[Attempt]


class BlockDetail(msgspec.Struct):
    """A block and every change of its state, oldest first."""

    block: BlockView
    history: list[BlockChange]


async def show_request(call: Call) -> RequestDetail:
    """A request with its attempts."""
    requests = call.services.store.requests
    number = _number(call.path["request"])
    return RequestDetail(await requests.get(number), await requests.attempts(number))


async def show_body(call: Call) -> Raw:
    """The newest body that was kept for a request, as bytes."""
    data = await _archived(call)
    for record in read_records(data):
        if record.type == "response":
            return _attachment(split_response(record).body, "application/octet-stream", "body.bin")
    raise NotFound("the archive has no response for this request")


async def show_record(call: Call) -> Raw:
    """The newest WARC records of a request, as they lie in the archive (zstd frames)."""
    return _attachment(await _archived(call), "application/zstd", "record.warc.zst")


async def show_block(call: Call) -> BlockDetail:
    """A block with its history."""
    blocks = call.services.store.blocks
    number = _number(call.path["block"])
    return BlockDetail(await blocks.get(number), await blocks.history(number))


async def _archived(call: Call) -> bytes:
    number = _number(call.path["request"])
    await call.services.store.requests.get(number)
    kept = [a for a in await call.services.store.requests.attempts(number) if a.length]
    if not kept:
        raise NotFound(f"no bytes were kept for request {number}")
    last = kept[-1]
    return await call.services.archive.read(last.segment, last.offset, last.length)


def _attachment(content: bytes, kind: str, name: str) -> Raw:
    return Raw(content, kind, {"content-disposition": f'attachment; filename="{name}"'})


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > _ID_DIGITS:
        raise InvalidInput(f"{text[:50]!r} is not an id; ids are decimal numbers")
    return int(text)


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
    ),
)
