"""Bulk operations: dry run, start, progress and cancel. Run by centers.

An operation is a row that centers process in batches. Nothing is changed without
`"dry_run": false`; acts that cannot be undone need the `confirm` of a dry run.
"""

from __future__ import annotations

import msgspec

from skep.center.api.jobs import author_of
from skep.center.api.listing import check_sees_all, is_one_of, listed
from skep.center.api.path_names import NUMBERS, number
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping, Streamed
from skep.center.http.scoping import operation_inside
from skep.errors import Conflict, Forbidden, InvalidFilter, InvalidInput, NotFound
from skep.model.filter.scoped import is_within
from skep.model.operations import OPEN_OPERATIONS, Operation
from skep.operations.acts import ActTraits
from skep.operations.export import MEDIA, check_file, file_pieces
from skep.wire.api.operations import (
    CANCEL_OPERATION,
    GET_OPERATION,
    GET_OPERATION_FILE,
    LIST_ACTS,
    LIST_OPERATIONS,
    START_OPERATION,
    ActLine,
    Acts,
    FileSize,
    OperationAnswer,
    OperationPage,
    OperationView,
    StartOperation,
    WhichOperations,
    view_of,
)
from skep.wire.filter.scoped_text import text_within

CREATOR_LIMIT = 200
#: Operations that are read at once, and how often for one page of a caller with a scope.
PAGE = 200
PAGES_LOOKED_AT = 10


async def list_acts(call: Call) -> Acts:
    """The acts that operations can use."""
    return Acts([_line(traits) for traits in call.services.operations.registry.all()])


def _line(traits: ActTraits) -> ActLine:
    names = list(traits.arguments.__struct_fields__)
    return ActLine(
        traits.resource,
        traits.name,
        traits.help,
        traits.destroys,
        traits.admin,
        traits.rate,
        names,
    )


async def start_operation(call: Call) -> OperationAnswer:
    """Show what would change, or start to change it."""
    asked: StartOperation = call.body
    operations = call.services.operations
    traits = operations.registry.act(asked.resource, asked.act).traits
    _check_role(call, traits)
    asked = _in_scope(call, asked)
    if asked.dry_run:
        return OperationAnswer(True, plan=await operations.planner.plan(asked))
    creator = author_of(call.who, "")[:CREATOR_LIMIT]
    started = await operations.planner.start(asked, creator)
    if not operation_inside(call, started):
        raise Conflict("another operation has this `key`; send another one")
    return OperationAnswer(False, operation=_view(call, started))


def _view(call: Call, operation: Operation) -> OperationView:
    return view_of(operation, with_causes=not call.who.scope)


def _in_scope(call: Call, asked: StartOperation) -> StartOperation:
    """The call, limited to the scope of its caller: the center that works it off, at any time,
    reads the limit in the filter."""
    empty = not asked.filter.strip()
    if not call.who.scope or (empty and not asked.all):
        return asked
    resource = call.services.operations.registry.resource(asked.resource)
    text = text_within(asked.filter, call.who.scope)
    if not is_within(resource.read(text, call.services.clock.now()), call.who.scope):
        raise Forbidden("your scope cannot be written as a filter; ask an admin to change it")
    return msgspec.structs.replace(asked, filter=text)


def _check_role(call: Call, traits: ActTraits) -> None:
    if traits.admin and call.who.role is not Role.ADMIN:
        raise Forbidden(
            f"{traits.name} of {traits.resource} needs role admin; the token has role"
            f" {call.who.role}"
        )
    if call.who.scope and not traits.scoped:
        raise Forbidden(f"{traits.name} of {traits.resource} is only for callers without a scope")


async def list_operations(call: Call) -> OperationPage:
    """Operations, newest first."""
    query: WhichOperations = call.query
    if query.filter is not None:
        return await _filtered(call, query)
    if call.who.scope:
        return await _inside(call, query)
    found = await call.services.store.operations.recent(
        query.limit, query.before or None, only_open=query.open
    )
    more = found[-1].id if len(found) == query.limit else None
    return OperationPage([_view(call, one) for one in found], more)


async def _inside(call: Call, query: WhichOperations) -> OperationPage:
    """A page for a caller with a scope: of the next operations those that are inside."""
    found: list[Operation] = []
    before = query.before or None
    for _ in range(PAGES_LOOKED_AT):
        page = await call.services.store.operations.recent(PAGE, before, only_open=query.open)
        for one in page:
            before = one.id
            if operation_inside(call, one):
                found.append(one)
            if len(found) == query.limit:
                return OperationPage([_view(call, each) for each in found], before)
        if len(page) < PAGE:
            return OperationPage([_view(call, one) for one in found])
    return OperationPage([_view(call, one) for one in found], before)


async def _filtered(call: Call, query: WhichOperations) -> OperationPage:
    check_sees_all(call)
    terms = [is_one_of("state", *OPEN_OPERATIONS)] if query.open else []
    items, more = await listed(call, "operations", *terms)
    return OperationPage([_view(call, one) for one in items], **more)


async def show_operation(call: Call) -> OperationView:
    """An operation, its progress and its results."""
    operations = call.services.store.operations
    found = await operations.get(number(call.path["operation"]))
    file = await operations.file(found.id)
    size = FileSize(file.lines, file.bytes) if file.pieces else None
    return msgspec.structs.replace(_view(call, found), file=size)


async def get_file(call: Call) -> Streamed:
    """The file of an export, as an attachment."""
    operations, store = call.services.operations, call.services.store
    found = await store.operations.get(number(call.path["operation"]))
    check_file(found, operations.registry.act(found.asked.resource, found.asked.act).traits)
    file = await store.operations.file(found.id)
    if found.settled and not file.pieces:
        raise NotFound(f"the file of operation {found.id} was deleted, or nothing was written")
    named = f"skep-{found.asked.resource}-{found.id}.jsonl"
    headers = {"content-disposition": f'attachment; filename="{named}"'}
    parts = file_pieces(store, found.id, file.pieces)
    return Streamed(parts, MEDIA, file.bytes, headers)


async def cancel_operation(call: Call) -> OperationView:
    """End an open operation. What is done stays done."""
    store, now = call.services.store, call.services.clock.now()
    found = await store.operations.get(number(call.path["operation"]))
    _check_role(
        call, call.services.operations.registry.act(found.asked.resource, found.asked.act).traits
    )
    return _view(call, await store.operations.cancel(found.id, now))


_NUMBERS = {"operation": NUMBERS["request"]}

ENDPOINTS = (
    Endpoint(
        LIST_ACTS,
        Role.VIEWER,
        list_acts,
        "List the acts of operations",
        tag="operations",
        scoped=Scoping.OWN,
    ),
    Endpoint(
        LIST_OPERATIONS,
        Role.VIEWER,
        list_operations,
        "List bulk operations",
        errors=(InvalidInput, InvalidFilter),
        tag="operations",
        scoped=Scoping.FILTERED,
    ),
    Endpoint(
        START_OPERATION,
        Role.OPERATOR,
        start_operation,
        "Start a bulk operation, or make a dry run",
        errors=(InvalidInput, InvalidFilter, Conflict),
        tag="operations",
        scoped=Scoping.FILTERED,
        notes="Changes nothing unless `dry_run` is false. The set of objects is fixed at the start:"
        " what matches later is not changed, what no longer matches is skipped. With a `key`,"
        " repeating a call is safe.",
    ),
    Endpoint(
        GET_OPERATION,
        Role.VIEWER,
        show_operation,
        "Show a bulk operation",
        errors=(InvalidInput, NotFound),
        tag="operations",
        scoped=Scoping.OPERATION,
        parameters=_NUMBERS,
    ),
    Endpoint(
        GET_OPERATION_FILE,
        Role.VIEWER,
        get_file,
        "Download the file of an export",
        errors=(InvalidInput, NotFound, Conflict),
        tag="operations",
        notes="One JSON object per line, with what lists show; secrets are masked. The file is"
        " deleted seven days after the operation has ended.",
        parameters=_NUMBERS,
        audited=True,
        audits_state=False,
    ),
    Endpoint(
        CANCEL_OPERATION,
        Role.OPERATOR,
        cancel_operation,
        "Cancel a bulk operation",
        errors=(InvalidInput, NotFound),
        tag="operations",
        scoped=Scoping.OPERATION,
        parameters=_NUMBERS,
    ),
)
