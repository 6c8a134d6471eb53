"""What the driver of a run calls: a spider's process takes over a run, reads pages and saves
checkpoints.

The bytes of a page are sent as they are archived. Only for callers that do not decode bodies,
the center decodes them, in a thread.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from skep.archive.decoded_records import decoded_records
from skep.archive.near_reads import read_frames
from skep.archive.ports import Archive
from skep.archive.record_reader import without_secrets as without_secrets_in
from skep.center.api.path_names import RUN_NAMES, run_name
from skep.center.api.runs import opened
from skep.center.http.authentication import LOOK_ONLY, Role
from skep.center.http.endpoint import Call, Endpoint, Scoping, Streamed
from skep.center.item_export import as_csv, as_lines
from skep.errors import (
    Conflict,
    DiskFull,
    InvalidInput,
    Malformed,
    NotEnoughAgents,
    TooLarge,
    UnknownRun,
)
from skep.jobs.request_sources import Checkpoint
from skep.jobs.runs.run_control import BEGAN
from skep.model.run import without_secrets
from skep.model.states import RunState
from skep.runtime.signals import within
from skep.store.ports.checkpoints import ItemRow, KeptItem, UnreadBlock, UnreadPage
from skep.wire.api.driver import (
    END_DRIVER,
    READ_ENDED_REQUESTS,
    SAVE_CHECKPOINT,
    START_DRIVER,
    Driving,
    Ended,
    FoundItem,
    LastWord,
    NewDriver,
    Page,
    PageBlock,
    Read,
    Reading,
    Turn,
    TurnDone,
)
from skep.wire.api.results import (
    EXPORT_ITEMS,
    LIST_ITEMS,
    LIST_PAGES,
    BlockPage,
    Item,
    ItemPage,
    Items,
    Pages,
    WhichExport,
)
from skep.wire.api.route import Route
from skep.wire.messages import BODIES_HEADER, ENCODED

#: Archived bytes in one answer; the rest is read with the next call.
READ_BYTES = 32 * 2**20
#: Seconds between two checks of a waiting reader: another center may have stored a block.
LOOK_EVERY = 0.5
#: States after which a driver reads no more.
ENDS = frozenset({RunState.FINISHED, RunState.CANCELLED, RunState.FAILED})


async def drive(call: Call) -> Driving:
    """Open a run, or take it over from its previous driver."""
    name = run_name(call.path["identity"])
    message: NewDriver = call.body
    run = await opened(call, name, message)
    run = await call.services.jobs.starts.driven(run, message.settings)
    await call.services.intake.allocate(run)
    now = call.services.clock.now()
    token = await call.services.store.checkpoints.take_over(name, message.patience, now)
    await call.services.control.acknowledged(name, "spider", BEGAN)
    return Driving(without_secrets(run), token)


async def end(call: Call) -> Ended:
    """End the driver: the run is paused, has failed or is finished, with a reason."""
    message: LastWord = call.body
    services = call.services
    name = run_name(call.path["identity"])
    to = RunState(message.state)
    await services.store.checkpoints.end(
        name, message.driver, to, message.reason, services.clock.now()
    )
    run = await services.store.runs.get(name)
    await services.control.moved(run)
    return Ended(without_secrets(run))


async def read(call: Call) -> Reading:
    """Ended requests with their bytes; waits up to `wait` seconds when there are none."""
    message: Read = call.body
    services = call.services
    name = run_name(call.path["identity"])
    deadline = services.clock.monotonic() + message.wait
    await services.control.driver_knows(name, message.state)
    while True:
        ticket = services.signals.pages.subscribe()
        # First what is open, then what has ended: in the other order, a block that ends in
        # between would be in neither, and a run could be called finished too early.
        ledger = await services.store.ledgers.read(name)
        found = await services.store.checkpoints.unread(name, message.limit, message.taken)
        orders = await services.store.checkpoints.orders(name)
        left = deadline - services.clock.monotonic()
        news = orders.asked or (message.state and orders.state != message.state)
        if found or news or not ledger.open or left <= 0 or services.closing.is_set():
            break
        await within(ticket, min(left, LOOK_EVERY))
    if orders.state in ENDS:  # the driver will not ask again
        await services.control.driver_knows(name, orders.state)
    fitting = _fitting(found) if message.bodies else found
    blocks = [await _with_bytes(services.archive, block, message.bodies) for block in fitting]
    await _decode_for(call, blocks)
    return Reading(blocks, ledger.open, orders.state, ledger.delayed, orders.reason, orders.asked)


def _fitting(found: list[UnreadBlock]) -> list[UnreadBlock]:
    """The first blocks whose bytes fit into one answer; at least one."""
    size = 0
    fitting: list[UnreadBlock] = []
    for block in found:
        size += sum(page.length for page in block.pages)
        if fitting and size > READ_BYTES:
            break
        fitting.append(block)
    return fitting


async def _with_bytes(archive: Archive, block: UnreadBlock, bodies: bool) -> PageBlock:
    frames = await read_frames(archive, block.pages) if bodies else {}
    return PageBlock(block.id, [_page(page, frames.get(page.id, b"")) for page in block.pages])


def _page(page: UnreadPage, frames: bytes) -> Page:
    return Page(
        page.id,
        page.uri,
        page.state,
        page.status,
        page.failure,
        page.detail,
        page.meta,
        page.final_uri,
        frames,
        page.elapsed_us,
    )


async def turn(call: Call) -> TurnDone:
    """Save a checkpoint: blocks read, items found, requests added; all or nothing."""
    message: Turn = call.body
    services = call.services
    found = [_row(item) for item in message.items]
    source = Checkpoint(services.store, message.driver, message.blocks, found, message.named)
    kept = await services.intake.accept_from(
        source, run_name(call.path["identity"]), message.requests
    )
    return TurnDone(kept.requests.new, kept.requests.known, kept.items)


def _row(item: FoundItem) -> ItemRow:
    """Raises InvalidInput for an item that could not be stored, or not be returned as JSON."""
    if not (0 <= item.request < 2**63 and 0 <= item.n < 2**31):
        raise InvalidInput(f"item {item.n} of request {item.request}: value out of range")
    try:
        msgspec.json.encode(item.data)
        return ItemRow(item.request, item.n, msgspec.msgpack.encode(item.data))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"item {item.n} of request {item.request} cannot be stored as JSON: {error}"
        ) from error


async def items(call: Call) -> Items:
    """Items of a run, oldest first."""
    query: ItemPage = call.query
    name = run_name(call.path["run"])
    kept = await call.services.store.checkpoints.items(name, query.after, query.limit)
    found = [_item(one) for one in kept]
    return Items(found, found[-1].id if found else query.after)


async def export(call: Call) -> Streamed:
    """All items of a run as a file."""
    query: WhichExport = call.query
    name, store = run_name(call.path["run"]), call.services.store
    await store.runs.get(name)  # raises UnknownRun before the answer begins
    columns = tuple(one.strip() for one in query.fields.split(",") if one.strip())
    headers = {"content-disposition": f'attachment; filename="items.{query.format}"'}
    if query.format == "csv":
        return Streamed(as_csv(store, name, columns), "text/csv; charset=utf-8", None, headers)
    return Streamed(as_lines(store, name), "application/x-ndjson", None, headers)


async def pages(call: Call) -> Pages:
    """Ended requests of a run with their archived bytes; reading again gives the same."""
    query: BlockPage = call.query
    name = run_name(call.path["run"])
    found = await call.services.store.checkpoints.ended(
        name, query.after, query.limit, collected=not query.unread
    )
    fitting = _fitting(found)
    blocks = [await _with_bytes(call.services.archive, block, bodies=True) for block in fitting]
    await _decode_for(call, blocks)
    if call.who.role in LOOK_ONLY:
        async with call.services.body_readers:
            await asyncio.to_thread(_without_requests, blocks)
    kept = await _items_of(call, name, fitting) if query.items else []
    return Pages(blocks, fitting[-1].id if fitting else query.after, kept)


async def _decode_for(call: Call, blocks: list[PageBlock]) -> None:
    """Decode the bodies, unless the caller has declared that it decodes them."""
    if call.headers.get(BODIES_HEADER) != ENCODED:
        async with call.services.body_readers:
            await asyncio.to_thread(_decode, blocks)


def _decode(blocks: list[PageBlock]) -> None:
    for page in (page for block in blocks for page in block.pages if page.frames):
        with suppress(Malformed, TooLarge):  # the caller gets the error when it reads the page
            page.frames = decoded_records(page.frames)


def _without_requests(blocks: list[PageBlock]) -> None:
    for block in blocks:
        for page in block.pages:
            page.frames = without_secrets_in(page.frames)


async def _items_of(call: Call, run: str, blocks: list[UnreadBlock]) -> list[Item]:
    requests = [page.id for block in blocks for page in block.pages]
    return [_item(kept) for kept in await call.services.store.checkpoints.items_of(run, requests)]


def _item(kept: KeptItem) -> Item:
    return Item(kept.id, kept.request, msgspec.msgpack.decode(kept.data))


def _row_of(
    route: Route[Any],
    handler: Any,
    summary: str,
    *,
    audited: bool = True,
    scoped: Scoping = Scoping.RUN,
) -> Endpoint:
    return Endpoint(
        route,
        Role.OPERATOR,
        handler,
        summary,
        errors=(InvalidInput, UnknownRun, Conflict, DiskFull, NotEnoughAgents),
        tag="runs",
        scoped=scoped,
        parameters=RUN_NAMES,
        for_driver=True,
        audited=audited,
    )


ENDPOINTS = (
    _row_of(START_DRIVER, drive, "Open a run or take it over", scoped=Scoping.MADE),
    _row_of(READ_ENDED_REQUESTS, read, "Read ended requests with their bytes", audited=False),
    _row_of(
        SAVE_CHECKPOINT, turn, "Save a checkpoint: pages read, items and requests", audited=False
    ),
    _row_of(END_DRIVER, end, "End the driver, with a state and a reason"),
    Endpoint(
        LIST_ITEMS,
        Role.VIEWER,
        items,
        "Items of a run",
        errors=(InvalidInput, UnknownRun),
        tag="runs",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
        clear=(Item,),
    ),
    Endpoint(
        EXPORT_ITEMS,
        Role.VIEWER,
        export,
        "All items of a run as a file",
        errors=(InvalidInput, UnknownRun),
        tag="runs",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
        notes="In a CSV file, text that a spreadsheet would take for a formula begins with an "
        "apostrophe.",
    ),
    Endpoint(
        LIST_PAGES,
        Role.VIEWER,
        pages,
        "Pages of a run with their archived bytes",
        errors=(InvalidInput, UnknownRun),
        tag="runs",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
        notes="The bytes are WARC records as zstd frames; viewers get `response` records only. "
        "Bodies are decoded, unless the header `skep-bodies: encoded` requests them as they are "
        "stored. Reading changes nothing.",
        clear=(Item,),
    ),
)
