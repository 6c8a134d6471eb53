"""Deletes rows of ended requests; no other module does. Run by centers only.

The ledger keeps counting them: for each state a second running count holds the number of its
requests without a row, and the count row by row adds it to what it finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import sqlalchemy as sa

from skep.model.states import FINAL_STATES, RequestState
from skep.store.sql.engine.database import FORGOTTEN, MINUTES, OF_RUN, Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.requests.dead_letter import count_departures
from skep.store.sql.schema.requests import request_spans, requests

#: Spans of each kind that one call looks at, the oldest first.
SPANS_LIMIT = 500
_FINAL = id_list(sorted(FINAL_STATES))


def forget_spans(tx: Tx, run: int) -> None:
    """Delete the span of a run without rows, and spans of minutes before the oldest request."""
    c = request_spans.c
    tx.execute(sa.delete(request_spans).where(c.kind == OF_RUN, c.number == run))
    lowest = tx.execute(sa.select(sa.func.min(requests.c.id))).scalar()
    for kind in MINUTES if lowest is not None else ():
        oldest = sa.select(c.number).where(c.kind == kind).order_by(c.number).limit(SPANS_LIMIT)
        numbers = list(tx.execute(oldest).scalars())
        old = sa.and_(c.kind == kind, in_list(c.number, numbers), c.high < lowest)
        if numbers:
            tx.execute(sa.delete(request_spans).where(old))


def forget_requests(tx: Tx, ids: Sequence[int]) -> int:
    """Delete ended requests with their attempts and items; open ones stay."""
    numbers = id_list(ids)
    wanted = f"id IN ({numbers}) AND state IN ({_FINAL})"
    rows = tx.sql(f"SELECT id, run, state FROM requests WHERE {wanted}").all()  # noqa: S608
    if not rows:
        return 0
    gone = id_list(row.id for row in rows)
    if any(row.state == RequestState.DEAD for row in rows):
        count_departures(tx, gone)
    tx.sql(f"DELETE FROM attempts WHERE request IN ({gone})")  # noqa: S608 - integers
    tx.sql(f"DELETE FROM items WHERE request IN ({gone})")  # noqa: S608 - integers
    tx.sql(f"DELETE FROM requests WHERE id IN ({gone})")  # noqa: S608 - integers
    for (run, state), count in Counter((row.run, row.state) for row in rows).items():
        tx.tally(run, FORGOTTEN + state, count)
    return len(rows)
