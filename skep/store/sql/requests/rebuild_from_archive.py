"""Creates rows for archived pages that the store does not know, for `skep archive rebuild`.

Each page becomes a done request with one attempt that refers to its bytes. Existing rows do not
change, so it can be run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from urllib.parse import urlsplit

import msgspec
import sqlalchemy as sa

from skep.model.archived_page import ArchivedPage
from skep.model.states import RequestState
from skep.store.sql.engine.database import ACCEPTED, Tx
from skep.store.sql.requests.dead_letter import own_bytes
from skep.store.sql.schema.requests import attempts, requests
from skep.store.sql.schema.runs import runs

_DONE = int(RequestState.DONE)
#: Method, headers, body and meta of a request that is known by its page only.
_ARGUMENTS = msgspec.msgpack.encode(("GET", {}, b"", None))
_DETAIL = "rebuilt from the archive"
_COLUMNS = tuple(column.name for column in attempts.columns)


def adopt_pages(tx: Tx, run: str, segment: str, pages: Sequence[ArchivedPage]) -> int:
    """Add the pages that are not known to the run; returns how many."""
    number = int(tx.execute(sa.select(runs.c.no).where(runs.c.id == run)).scalar_one())
    fresh = _unknown(tx, segment, pages)
    if not fresh:
        return 0
    rows = [_request(number, segment, page) for page in fresh]
    ids = tx.dialect.insert_numbered(tx.connection, requests, rows)
    for page in fresh:
        tx.span(number, page.at, min(ids), max(ids))
    made = [_attempt(one, segment, page) for one, page in zip(ids, fresh, strict=True)]
    tx.dialect.insert_many(tx.connection, attempts, _COLUMNS, made)
    tx.tally(number, ACCEPTED, len(fresh))
    tx.tally(number, _DONE, len(fresh))
    end = max(page.offset + page.length for page in fresh)
    own_bytes(tx, {segment: end}, {(segment, number): sum(page.length for page in fresh)})
    return len(fresh)


def _unknown(tx: Tx, segment: str, pages: Sequence[ArchivedPage]) -> list[ArchivedPage]:
    first, last = pages[0].offset, pages[-1].offset
    query = sa.select(attempts.c.offset).where(
        attempts.c.segment == segment, attempts.c.offset.between(first, last), attempts.c.length > 0
    )
    known = set(tx.execute(query).scalars())
    return [page for page in pages if page.offset not in known]


def _request(run: int, segment: str, page: ArchivedPage) -> dict[str, object]:
    place = f"{segment}:{page.offset}".encode()
    return {
        "run": run,
        "fingerprint": blake2b(place, digest_size=16).digest(),
        "uri": page.uri,
        "host": (urlsplit(page.uri).netloc.rpartition("@")[2] or "unknown")[:255],
        "priority": 0,
        "arguments": _ARGUMENTS,
        "state": _DONE,
        "failures": 0,
        "not_before": 0.0,
        "created_at": page.at,
    }


def _attempt(request: int, segment: str, page: ArchivedPage) -> tuple[object, ...]:
    row = {
        "request": request,
        "block": 0,
        "token": 0,
        "agent": "",
        "at": page.at,
        "failure": "",
        "status": page.status,
        "detail": _DETAIL,
        "elapsed_us": 0,
        "sent": 0,
        "received": page.received,
        "address": page.address,
        "final_uri": "",
        "segment": segment,
        "offset": page.offset,
        "length": page.length,
    }
    return tuple(row[name] for name in _COLUMNS)
