"""Deletes rows of ended requests; no other module does. Run by centers only.

The ledger keeps counting them: for each state a second running count holds the number of its
requests without a row, and the count row by row adds it to what it finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from skep.model.states import FINAL_STATES
from skep.store.sql.engine.database import FORGOTTEN, Tx
from skep.store.sql.engine.dialect import id_list

_FINAL = id_list(sorted(FINAL_STATES))


def forget_requests(tx: Tx, ids: Sequence[int]) -> int:
    """Delete ended requests with their attempts and items; open ones stay."""
    numbers = id_list(ids)
    wanted = f"id IN ({numbers}) AND state IN ({_FINAL})"
    rows = tx.sql(f"SELECT id, run, state FROM requests WHERE {wanted}").all()  # noqa: S608
    if not rows:
        return 0
    gone = id_list(row.id for row in rows)
    tx.sql(f"DELETE FROM attempts WHERE request IN ({gone})")  # noqa: S608 - integers
    tx.sql(f"DELETE FROM items WHERE request IN ({gone})")  # noqa: S608 - integers
    tx.sql(f"DELETE FROM requests WHERE id IN ({gone})")  # noqa: S608 - integers
    for (run, state), count in Counter((row.run, row.state) for row in rows).items():
        tx.tally(run, FORGOTTEN + state, count)
    return len(rows)
