"""Disk space, retention and the outbox of notices: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.message_bounds import FilterText
from skep.model.retention import Deleted, DeletionSum, Expired
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route


class Folder(msgspec.Struct):
    """A folder that the center writes to."""

    folder: str
    free: int


class Disk(msgspec.Struct):
    """Free space on the disks."""

    disks: list[Folder]
    free_limit: int
    #: Why no requests are accepted or leased now; "" = they are.
    trouble: str


class Kept(msgspec.Struct):
    """Stored bytes of one kind; for logs and rows an estimate."""

    kind: str
    bytes: int
    #: The limits for jobs without their own; 0 = none.
    age_limit: float
    bytes_limit: int
    by_job: dict[str, int]


class Storage(msgspec.Struct):
    """Disk space and its use."""

    disks: list[Folder]
    free_limit: int
    #: Why no requests are accepted or leased now; "" = they are.
    trouble: str
    archive: str
    segments: int
    archive_bytes: int
    kept: list[Kept]
    deleted: list[DeletionSum]
    #: Stored bytes of log lines, compressed, and their limit.
    log_bytes: int = 0
    #: Limit of the stored bytes of log lines.
    log_limit: int = 0


class Plan(msgspec.Struct):
    """What the next step of retention would delete, and its size."""

    items: list[Expired]
    runs: int
    bytes: dict[str, int]


class WhichNotices(msgspec.Struct):
    """Newest first."""

    #: Only notices of this run; empty = all runs.
    run: Annotated[str, Meta(max_length=64)] = ""
    #: Maximum number of notices, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class NoticeLine(msgspec.Struct):
    """A notice, without its content and without secrets."""

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


class Notices(Listed):
    """Newest first."""

    items: list[NoticeLine]


GET_DISK = Route("get_disk", "GET", "/api/v1/storage/disk", Disk, seconds=60.0)
GET_STORAGE = Route("get_storage", "GET", "/api/v1/storage", Storage, seconds=600.0)
GET_RETENTION_PLAN = Route("get_retention_plan", "GET", "/api/v1/storage/plan", Plan, seconds=600.0)
CLEAN_STORAGE = Route("clean_storage", "POST", "/api/v1/storage/clean", Deleted, seconds=600.0)
LIST_NOTICES = Route("list_notices", "GET", "/api/v1/notices", Notices, asks=WhichNotices)


class StorageClient(Resource):
    """Calls the routes of this file."""

    async def disk(self) -> Disk:
        """Is there room?"""
        return await self._caller.call(GET_DISK)

    async def show(self) -> Storage:
        """Room, and what fills it."""
        return await self._caller.call(GET_STORAGE)

    async def plan(self) -> Plan:
        """What retention would delete."""
        return await self._caller.call(GET_RETENTION_PLAN)

    async def clean(self) -> Deleted:
        """Delete now what is due."""
        return await self._caller.call(CLEAN_STORAGE)

    async def notices(self, asks: WhichNotices | None = None) -> Notices:
        """The outbox of notices."""
        return await self._caller.call(LIST_NOTICES, asks=asks)
