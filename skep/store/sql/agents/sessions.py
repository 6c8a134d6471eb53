"""Decides which process is an agent: the newest that registered. Pure; run by centers only.

An agent's folder can be copied, and the copy started. Both processes have the same id and the
same credential, so a number distinguishes them: each new process gets the next number, and
processes with a lower one are refused. Each process also has a mark, by which its repeated
registration is recognized. The mark also keeps a fenced process from coming back: its folder
does not know the mark of the newer process.
"""

from __future__ import annotations

from typing import Any

from skep.errors import Fenced
from skep.model.fleet.agent import Arrival


def new_session(row: Any, came: Arrival, now: float) -> dict[str, object]:
    """Columns of the agent's row for a registration; raises Fenced."""
    current = row.session or 0
    if came.session:
        if came.session < current:
            raise Fenced(
                f"agent {row.id} runs elsewhere as session {current}; this process is session"
                f" {came.session}: its folder was copied or moved"
            )
        return {"session": came.session}
    if _same_process(row, came):  # the answer to its first call was lost, or is on its way
        return {"session": current}
    alive = now - row.seen_at < came.alive_after
    if row.mark and came.mark and row.mark not in {came.mark, *came.known} and alive:
        raise Fenced(
            f"agent {row.id} runs elsewhere, and this folder is an older copy of its folder;"
            " stop the other one, or join from here with a new token and an empty folder"
        )
    return {"session": current + 1, "mark": came.mark or None}


def is_late(row: Any, came: Arrival) -> bool:
    """A repeated call of a process that is registered and has sent heartbeats since: it is
    outdated and must not be taken to mean that the process holds no block."""
    return not came.session and _same_process(row, came) and row.seen_at > row.registered_at


def _same_process(row: Any, came: Arrival) -> bool:
    return bool(came.mark) and row.mark == came.mark
