"""Stored data and free space, past and planned deletions, and notices.

Run by centers. Only `clean` deletes anything, and never more than retention would.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.center.api.listing import asks_list, is_one_of, listed
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import InvalidInput
from skep.jobs.endings.notices import hidden_target
from skep.model.jobs.notice import Notice
from skep.model.retention import KINDS, Deleted
from skep.wire.api.route import Route
from skep.wire.api.storage import (
    CLEAN_STORAGE,
    GET_DISK,
    GET_RETENTION_PLAN,
    GET_STORAGE,
    LIST_NOTICES,
    Disk,
    Folder,
    Kept,
    NoticeLine,
    Notices,
    Plan,
    Storage,
    WhichNotices,
)

PLAN_LIMIT = 5000


async def show_storage(call: Call) -> Storage:
    """Free space, and what uses the rest."""
    services = call.services
    segments, size = await services.archive.usage()
    keep = services.settings.keep
    kept = []
    for kind in KINDS:
        volumes = await services.store.retention.volumes(kind)
        limits = (getattr(keep, f"{kind}_age"), getattr(keep, f"{kind}_bytes"))
        kept.append(Kept(kind, sum(volumes.values()), *limits, volumes))
    return Storage(
        [Folder(folder, free) for folder, free in services.disk.figures()],
        keep.free_bytes,
        services.disk.stops_leasing,
        services.archive.describe(),
        segments,
        size,
        kept,
        await services.store.retention.deleted(),
        sum(one.bytes for one in await services.logs.pieces.stored()),
        services.settings.logs.bytes,
    )


async def show_disk(call: Call) -> Disk:
    """Free space only, without counting."""
    guard = call.services.disk
    folders = [Folder(folder, free) for folder, free in guard.figures()]
    return Disk(folders, call.services.settings.keep.free_bytes, guard.trouble)


async def show_plan(call: Call) -> Plan:
    """A dry run of retention."""
    items = await call.services.retention.plan(PLAN_LIMIT)
    sizes: dict[str, int] = {}
    for item in items:
        sizes[item.kind] = sizes.get(item.kind, 0) + item.volume
    return Plan(items, len({item.run for item in items}), sizes)


async def clean(call: Call) -> Deleted:
    """Do now what retention would do later."""
    deleted = await call.services.retention.step()
    call.services.metrics.show_deleted(msgspec.structs.asdict(deleted))
    return deleted


async def list_notices(call: Call) -> Notices:
    """The outbox: notices that were sent, that wait, and that were given up."""
    query: WhichNotices = call.query
    if asks_list(call):
        terms = [is_one_of("run", query.run)] if query.run else []
        items, more = await listed(call, "notices", *terms)
        return Notices([_notice(one) for one in items], **more)
    found = await call.services.store.notices.recent(query.limit, query.run)
    return Notices([_notice(one) for one in found])


def _notice(one: Notice) -> NoticeLine:
    told = {**msgspec.structs.asdict(one), "target": hidden_target(one.target)}
    return NoticeLine(**{name: told[name] for name in NoticeLine.__struct_fields__})


def _row(route: Route[Any], role: Role, handler: Any, summary: str, **more: Any) -> Endpoint:
    return Endpoint(route, role, handler, summary, tag="storage", **more)


ENDPOINTS = (
    _row(GET_DISK, Role.VIEWER, show_disk, "Show free disk space"),
    _row(GET_STORAGE, Role.VIEWER, show_storage, "Show disk space and what uses it"),
    _row(GET_RETENTION_PLAN, Role.VIEWER, show_plan, "Show what retention would delete"),
    _row(CLEAN_STORAGE, Role.ADMIN, clean, "Delete what is due now"),
    _row(
        LIST_NOTICES,
        Role.VIEWER,
        list_notices,
        "The outbox of notices",
        errors=(InvalidInput,),
        scoped=Scoping.FILTERED,
    ),
)
