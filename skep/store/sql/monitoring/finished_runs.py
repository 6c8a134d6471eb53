"""Notes finished runs for comparison with their history. Run by centers only.

Inside the transaction that ends the run, so that no end is missed.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.model.states import RunState
from skep.store.sql.engine.database import Tx
from skep.store.sql.schema.monitoring import run_summaries as summaries

_COLUMNS = ("run", "job", "state", "ended_at", "judged", "finding")


def note_finished(tx: Tx, run: str, job: str, state: RunState, now: float) -> None:
    """Called with each change of a run's state: a run that finished again is compared again."""
    if state is not RunState.FINISHED:
        return
    row = (run, job, str(state), now, 0, "")
    if not tx.dialect.insert_new(tx.connection, summaries, _COLUMNS, [row]):
        again = {"judged": 0, "ended_at": now, "state": str(state)}
        tx.execute(sa.update(summaries).where(summaries.c.run == run).values(**again))
