"""What is kept and how much room there is; what was deleted, and what will be; notices.

Run by centers. Only `clean` deletes anything, and it deletes what retention would.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.jobs.notices import hidden_target
from skep.jobs.retention import Deleted, Expired
from skep.store.keep_facts import KINDS, DeletionSum

PLAN_LIMIT = 5000


class Folder(msgspec.Struct):
    """A folder that the center writes to."""

    folder: str
    free: int


class Disk(msgspec.Struct):
    """Room on the disks."""

    disks: list[Folder]
    free_limit: int
    #: Why nothing is accepted or leased just now; "" = all is well.
    trouble: str


class Kept(msgspec.Struct):
    """Bytes of one kind that are kept; of logs and rows an estimate."""

    kind: str
    bytes: int
    #: The limits in force for jobs that say nothing; 0 = none.
    age_limit: float
    bytes_limit: int
    by_job: dict[str, int]


class Storage(msgspec.Struct):
    """Everything about room."""

    disks: list[Folder]
    free_limit: int
    #: Why nothing is accepted or leased just now; "" = all is well.
    trouble: str
    archive: str
    segments: int
    archive_bytes: int
    kept: list[Kept]
    deleted: list[DeletionSum]


class Plan(msgspec.Struct):
    """What the next step of retention would delete, and what that weighs."""

    items: list[Expired]
    runs: int
    bytes: dict[str, int]


class WhichNotices(msgspec.Struct):
    """Newest first."""

    #: Only notices of this run; empty = all runs.
    run: Annotated[str, Meta(max_length=64)] = ""
    #: Number of notices at most, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class NoticeLine(msgspec.Struct):
    """A notice, without what it says and without anything secret."""

    id: str
    run: str
    job: str
    kind: str
    target: str
    state: str
    tries: int
    created_at: float
    due_at: float
    error: str


class Notices(msgspec.Struct):
    """Newest first."""

    items: list[NoticeLine]


async def show_storage(call: Call) -> Storage:
    """Room, and what fills it."""
    services = call.services
    segments, size = await services.archive.usage()
    keep = services.settings.keep
    kept = []
    for kind in KINDS:
        volumes = await services.store.keeping.volumes(kind)
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
        await services.store.keeping.deleted(),
    )


async def show_disk(call: Call) -> Disk:
    """Room alone, at once."""
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
    """Do now what retention would do by itself later."""
    deleted = await call.services.retention.step()
    call.services.metrics.show_deleted(msgspec.structs.asdict(deleted))
    return deleted


async def list_notices(call: Call) -> Notices:
    """The outbox: what was told, what waits, what was given up."""
    query: WhichNotices = call.query
    found = await call.services.store.notices.recent(query.limit, query.run)
    told = ({**msgspec.structs.asdict(n), "target": hidden_target(n.target)} for n in found)
    return Notices([NoticeLine(**{f: n[f] for f in NoticeLine.__struct_fields__}) for n in told])


def _row(
    method: str, path: str, role: Role, handler: object, summary: str, **more: object
) -> Endpoint:
    return Endpoint(method, path, role, handler, summary, tag="storage", **more)  # type: ignore[arg-type]  # one Call each


ENDPOINTS = (
    _row("GET", "/api/v1/storage/disk", Role.VIEWER, show_disk, "Is there room?", gives=Disk),
    _row(
        "GET",
        "/api/v1/storage",
        Role.VIEWER,
        show_storage,
        "Room, and what fills it",
        gives=Storage,
    ),
    _row(
        "GET",
        "/api/v1/storage/plan",
        Role.VIEWER,
        show_plan,
        "What retention would delete",
        gives=Plan,
    ),
    _row(
        "POST", "/api/v1/storage/clean", Role.ADMIN, clean, "Delete now what is due", gives=Deleted
    ),
    _row(
        "GET",
        "/api/v1/notices",
        Role.VIEWER,
        list_notices,
        "The outbox of notices",
        gives=Notices,
        asks=WhichNotices,
    ),
)
