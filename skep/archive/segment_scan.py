"""Finds the records of a segment file without the store. Blocking; used by centers at a start
and by `skep archive rebuild`.

It follows the lengths of zstd frames. After damage it continues at the next complete frame.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec

from skep.archive.frame_boundaries import frame_end
from skep.archive.records import HOP, WarcRecord, read_records, split_stored
from skep.errors import Malformed, TooLarge
from skep.model.archived_page import ArchivedPage

_MAGIC = b"\x28\xb5\x2f\xfd"


def whole_frames(path: Path, start: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of every complete frame from `start` on."""
    with path.open("rb") as file:
        if path.stat().st_size <= start:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            while 0 <= start < len(data):
                try:
                    end = frame_end(cast("bytes", data), start)
                except Malformed:
                    start = data.find(_MAGIC, start + 1)
                else:
                    yield start, end
                    start = end


def found_pages(path: Path) -> Iterator[ArchivedPage]:
    """Every response of a segment; records that cannot be read are skipped."""
    page: ArchivedPage | None = None
    with path.open("rb") as file:
        for begin, end in whole_frames(path, 0):
            file.seek(begin)
            record = _record(file.read(end - begin))
            if page is not None and record is not None and _belongs_to_page(record):
                page = msgspec.structs.replace(page, length=end - page.offset)
                continue
            if page is not None:
                yield page
            page = _page(record, begin, end) if record is not None else None
    if page is not None:
        yield page


def _record(data: bytes) -> WarcRecord | None:
    try:
        return read_records(data)[0]
    except (Malformed, TooLarge):
        return None


def _belongs_to_page(record: WarcRecord) -> bool:
    """Whether a record follows the response of its page: the request, and redirects."""
    return record.type in {"request", "metadata"} or HOP in record.headers


def _page(record: WarcRecord, begin: int, end: int) -> ArchivedPage | None:
    uri = record.headers.get("WARC-Target-URI", "")
    if record.type != "response" or not uri or HOP in record.headers:
        return None
    try:
        response = split_stored(record)
    except Malformed:
        return None
    address = record.headers.get("WARC-IP-Address", "")
    at = _seconds(record.headers.get("WARC-Date", ""))
    return ArchivedPage(begin, end - begin, uri, response.status, address, at, len(response.body))


def _seconds(date: str) -> float:
    try:
        return datetime.strptime(date[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
