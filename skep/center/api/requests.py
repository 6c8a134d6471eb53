"""Single requests and blocks, with their history and their archived bytes.

Downloaded data is untrusted: it is always sent as an attachment with a type that no browser
renders.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from skep.archive.record_reader import StoredBody, without_secrets
from skep.center.api.path_names import NUMBERS, number
from skep.center.http.authentication import LOOK_ONLY, Role
from skep.center.http.endpoint import Call, Endpoint, Raw, Streamed
from skep.errors import (
    ArchiveDamaged,
    InvalidInput,
    Malformed,
    NotFound,
    TooLarge,
    UnknownBlock,
)
from skep.store.ports.requests import RequestView
from skep.wire.api.requests import (
    GET_BLOCK,
    GET_REQUEST,
    GET_REQUEST_BODY,
    GET_REQUEST_RECORD,
    BlockDetail,
    RequestDetail,
    RequestLine,
)

#: Seconds that a caller may take to read one body.
READ_SECONDS = 600.0


async def show_request(call: Call) -> RequestDetail:
    """A request with its attempts."""
    requests = call.services.store.requests
    wanted = number(call.path["request"])
    return RequestDetail(line_of(await requests.get(wanted)), await requests.attempts(wanted))


def line_of(view: RequestView) -> RequestLine:
    """A request as the API shows it."""
    told = {**msgspec.structs.asdict(view), "state": view.state.name.lower()}
    return msgspec.convert(told, RequestLine)


async def show_body(call: Call) -> Streamed:
    """The newest archived body of a request, decoded."""
    data, run = await _archived(call)
    limit = (await call.services.store.runs.get(run)).settings.body_limit
    try:
        async with call.services.body_readers:  # an encoded body is decoded to know its size
            body, first = await asyncio.to_thread(_opened, data, limit)
    except Malformed as error:
        raise ArchiveDamaged(
            f"the archived record of request {call.path['request']} cannot be read: {error.detail}"
        ) from error
    parts = _pieces(call.services.body_readers, body, first)
    return Streamed(parts, "application/octet-stream", body.size, _attached("body.bin"))


def _opened(data: bytes, limit: int) -> tuple[StoredBody, bytes]:
    """The body and its first piece: damage of a small body is found before the answer begins."""
    body = StoredBody(data, limit)
    return body, body.piece()


async def _pieces(
    readers: asyncio.Semaphore, body: StoredBody, piece: bytes
) -> AsyncIterator[bytes]:
    """The decoded body in pieces; decoded in threads, for a few callers at a time."""
    async with readers, asyncio.timeout(READ_SECONDS):
        while piece:
            yield piece
            piece = await asyncio.to_thread(body.piece)


async def show_record(call: Call) -> Raw:
    """The newest WARC records of a request, as they are archived (zstd frames)."""
    data, _ = await _archived(call)
    if call.who.role in LOOK_ONLY:
        async with call.services.body_readers:
            data = await asyncio.to_thread(without_secrets, data)
    return Raw(data, "application/zstd", _attached("record.warc.zst"))


async def show_block(call: Call) -> BlockDetail:
    """A block with its history."""
    blocks = call.services.store.blocks
    wanted = number(call.path["block"])
    return BlockDetail(await blocks.get(wanted), await blocks.history(wanted))


async def _archived(call: Call) -> tuple[bytes, str]:
    """The frames of the last attempt that has any, and the run of the request."""
    wanted = number(call.path["request"])
    run = (await call.services.store.requests.get(wanted)).run
    kept = [a for a in await call.services.store.requests.attempts(wanted) if a.length]
    if not kept:
        raise NotFound(f"no bytes are archived for request {wanted}")
    last = kept[-1]
    return await call.services.archive.read(last.segment, last.offset, last.length), run


def _attached(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


ENDPOINTS = (
    Endpoint(
        GET_REQUEST,
        Role.VIEWER,
        show_request,
        "Show a request and its attempts",
        errors=(NotFound, InvalidInput),
        tag="requests",
        parameters=NUMBERS,
    ),
    Endpoint(
        GET_REQUEST_BODY,
        Role.VIEWER,
        show_body,
        "The archived body of a request",
        errors=(NotFound, InvalidInput, TooLarge),
        tag="requests",
        parameters=NUMBERS,
    ),
    Endpoint(
        GET_REQUEST_RECORD,
        Role.VIEWER,
        show_record,
        "The archived WARC records of a request",
        errors=(NotFound, InvalidInput, TooLarge),
        notes="As they are archived: a body may have the coding that its `Content-Encoding` "
        "names. Viewers get `response` records only; the others contain what was sent.",
        tag="requests",
        parameters=NUMBERS,
    ),
    Endpoint(
        GET_BLOCK,
        Role.VIEWER,
        show_block,
        "Show a block and its history",
        errors=(UnknownBlock, InvalidInput),
        tag="requests",
        parameters=NUMBERS,
    ),
)
