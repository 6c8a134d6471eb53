"""Single requests and blocks, with their history and their archived bytes.

Downloaded data is untrusted: it is always sent as an attachment with a type that no browser
renders.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from skep.archive.record_reader import StoredBody, response_head, without_secrets
from skep.archive.records import header_pairs
from skep.center.api.path_names import NUMBERS, number
from skep.center.http.authentication import LOOK_ONLY, Role
from skep.center.http.endpoint import Call, Endpoint, Raw, Scoping, Streamed
from skep.center.request_line import line_of
from skep.errors import (
    ArchiveDamaged,
    InvalidInput,
    Malformed,
    NotFound,
    TooLarge,
    UnknownBlock,
)
from skep.wire.api.requests import (
    GET_BLOCK,
    GET_REQUEST,
    GET_REQUEST_BODY,
    GET_REQUEST_HEAD,
    GET_REQUEST_RECORD,
    ArchivedHead,
    BlockDetail,
    HeaderLine,
    RequestDetail,
)

#: Seconds that a caller may take to read one body.
READ_SECONDS = 600.0


async def show_request(call: Call) -> RequestDetail:
    """A request with its attempts."""
    requests = call.services.store.requests
    wanted = number(call.path["request"])
    return RequestDetail(line_of(await requests.get(wanted)), await requests.attempts(wanted))


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


async def show_head(call: Call) -> ArchivedHead:
    """Status line and headers of the newest archived answer; viewers get harmless values only."""
    data, _ = await _archived(call)
    async with call.services.body_readers:
        return await asyncio.to_thread(_head, data, call.who.role in LOOK_ONLY)


def _head(data: bytes, masked: bool) -> ArchivedHead:
    try:
        head = response_head(without_secrets(data) if masked else data)
    except Malformed as error:
        raise ArchiveDamaged(f"the archived record cannot be read: {error.detail}") from error
    first = head.partition(b"\r\n")[0].decode("latin-1")
    return ArchivedHead(first, [HeaderLine(*pair) for pair in header_pairs(head)])


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
        scoped=Scoping.REQUEST,
        parameters=NUMBERS,
    ),
    Endpoint(
        GET_REQUEST_BODY,
        Role.VIEWER,
        show_body,
        "The archived body of a request",
        errors=(NotFound, InvalidInput, TooLarge),
        tag="requests",
        scoped=Scoping.REQUEST,
        parameters=NUMBERS,
    ),
    Endpoint(
        GET_REQUEST_HEAD,
        Role.VIEWER,
        show_head,
        "Status line and headers of the archived answer",
        errors=(NotFound, InvalidInput, TooLarge),
        notes="Viewers get the values of harmless headers only.",
        tag="requests",
        scoped=Scoping.REQUEST,
        parameters=NUMBERS,
        clear=(ArchivedHead,),
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
        scoped=Scoping.REQUEST,
        parameters=NUMBERS,
    ),
    Endpoint(
        GET_BLOCK,
        Role.VIEWER,
        show_block,
        "Show a block and its history",
        errors=(UnknownBlock, InvalidInput),
        tag="requests",
        scoped=Scoping.BLOCK,
        parameters=NUMBERS,
    ),
)
