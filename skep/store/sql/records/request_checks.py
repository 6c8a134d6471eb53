"""Checks what is derived from requests: spans of ids, and failure classes. Run by centers only.

A center of an earlier version writes neither during an upgrade, and lists would miss its requests.
Each step reads one range of ids, the newest first, so that these requests are found soon. A repair
only widens spans and fills empty columns: it never makes a list miss a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from skep.model.states import RequestState
from skep.store.sql.engine.database import MINUTE, OF_RUN, Tx
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.schema.ended_work import faults
from skep.store.sql.schema.requests import request_spans, requests

RequestCheck = Literal["spans", "failures"]
#: Ids of one step, for each row of the limit: rows are grouped, not sent.
IDS_PER_ROW = 50

_failure = sa.select(faults.c.failure).where(faults.c.id == requests.c.fault).scalar_subquery()
_unnamed = sa.and_(
    requests.c.state == int(RequestState.DEAD),
    requests.c.failure.is_(None),
    sa.func.coalesce(_failure, "") != "",
)


class _Span(NamedTuple):
    """Ids of a run or, with `OF_RUN + 1`, of a minute."""

    kind: int
    number: int
    low: int
    high: int


def find_in_requests(
    connection: sa.Connection, kind: RequestCheck, after: str, limit: int
) -> tuple[list[str], str]:
    """Differences in the next range of ids below a cursor, and the next cursor."""
    ends = sa.select(sa.func.min(requests.c.id), sa.func.max(requests.c.id))
    lowest, highest = connection.execute(ends).one()
    if lowest is None:
        return [], ""
    high = min(int(after) - 1, highest) if after else highest
    low = high - limit * IDS_PER_ROW + 1
    within = requests.c.id.between(low, high)
    found = _spans_in(connection, within) if kind == "spans" else _unnamed_in(connection, within)
    return found, str(low) if low > lowest else ""


def repair_requests(tx: Tx, kind: RequestCheck, names: Sequence[str]) -> list[str]:
    """Repair those that are still different."""
    if kind == "failures":
        here = sa.and_(in_list(requests.c.id, [int(name) for name in names]), _unnamed)
        ids = sorted(tx.execute(sa.select(requests.c.id).where(here)).scalars())
        tx.execute(sa.update(requests).where(here).values(failure=_failure))
        return [str(one) for one in ids]
    spans = _missing(tx.connection, [_Span(*map(int, name.split("-"))) for name in names])
    for span in spans:
        tx.widen((span.kind, span.number), span.low, span.high)
    return [_name(span) for span in spans]


def _unnamed_in(connection: sa.Connection, within: sa.ColumnElement[bool]) -> list[str]:
    query = sa.select(requests.c.id).where(within, _unnamed).order_by(requests.c.id)
    return [str(one) for one in connection.execute(query).scalars()]


def _spans_in(connection: sa.Connection, within: sa.ColumnElement[bool]) -> list[str]:
    # The rows before the spans: both are written by one transaction.
    minute = sa.func.floor(requests.c.created_at / MINUTE)
    ids = sa.func.min(requests.c.id), sa.func.max(requests.c.id)
    query = sa.select(requests.c.run, minute, *ids).where(within).group_by(requests.c.run, minute)
    hulls: dict[tuple[int, int], tuple[int, int]] = {}
    for run, at, low, high in connection.execute(query):
        for key in ((OF_RUN, int(run)), (OF_RUN + 1, int(at))):
            known = hulls.get(key, (low, high))
            hulls[key] = min(known[0], low), max(known[1], high)
    wanted = [_Span(*key, *ids) for key, ids in sorted(hulls.items())]
    return [_name(span) for span in _missing(connection, wanted)]


def _missing(connection: sa.Connection, wanted: Iterable[_Span]) -> list[_Span]:
    """Those that the stored spans do not contain."""
    found = []
    for of_run in (True, False):
        some = [span for span in wanted if (span.kind == OF_RUN) == of_run]
        known = _known(connection, [span.number for span in some], of_run=of_run)
        for span in some:
            low, high = known.get(span.number, (span.low + 1, span.low))
            if not low <= span.low <= span.high <= high:
                found.append(span)
    return found


def _known(
    connection: sa.Connection, numbers: list[int], *, of_run: bool
) -> dict[int, tuple[int, int]]:
    c = request_spans.c
    kind = c.kind == OF_RUN if of_run else c.kind > OF_RUN
    query = sa.select(c.number, sa.func.min(c.low), sa.func.max(c.high))
    query = query.where(kind, in_list(c.number, numbers)).group_by(c.number)
    rows: Any = connection.execute(query) if numbers else ()
    return {int(number): (int(low), int(high)) for number, low, high in rows}


def _name(span: _Span) -> str:
    return "-".join(map(str, span))
