"""Which process is an agent: the newest one that registered. Pure; run by centers only.

A folder of an agent can be copied, and a copy started. Both processes have the same id and
the same credential, so a number tells them apart: each new process gets the next one, and
whoever comes with a lower one is out. Each has a mark of its own, by which a process that
tries again is known. It keeps the loser from coming back, too: its folder does not know the
winner's mark.
"""

from __future__ import annotations

from typing import Any

from skep.errors import Fenced
from skep.model.fleet.agent import Arrival


def new_session(row: Any, came: Arrival, now: float) -> dict[str, object]:
    """Columns of the agent's row as it registers; raises Fenced."""
    current = row.session or 0
    if came.session:
        if came.session < current:
            raise Fenced(
                f"agent {row.id} runs elsewhere as session {current}, this process was session"
                f" {came.session}: its folder was copied or moved"
            )
        return {"session": came.session}
    if _same_process(row, came):  # the answer to its first try was lost, or is on its way
        return {"session": current}
    alive = now - row.seen_at < came.alive_after
    if row.mark and came.mark and row.mark not in {came.mark, *came.known} and alive:
        raise Fenced(
            f"agent {row.id} lives elsewhere, and this folder is an older copy of its folder;"
            " stop the other one, or join from here with a new token and an empty folder"
        )
    return {"session": current + 1, "mark": came.mark or None}


def is_late(row: Any, came: Arrival) -> bool:
    """A try of a process that another try has registered, and that has beaten since: it says
    nothing of now, least of all that the process holds no block."""
    return not came.session and _same_process(row, came) and row.seen_at > row.registered_at


def _same_process(row: Any, came: Arrival) -> bool:
    return bool(came.mark) and row.mark == came.mark
