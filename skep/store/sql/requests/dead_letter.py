"""Dead-letters requests with their failure fingerprint, and records owners of archive bytes.

Run by centers only, inside the transaction that settles reports or takes blocks back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from skep.errors import Unavailable
from skep.model.failures.failure_fingerprint import FailureFingerprint, failure_fingerprint
from skep.model.request import Outcome
from skep.model.states import RequestState
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.schema.ended_work import faults, segment_runs
from skep.store.sql.schema.records import segments

#: Characters of the column.
FAILURE_LENGTH = 16
_COLUMNS = ("id", "failure", "status", "text")


def sorted_by_fingerprint(outcomes: Iterable[Outcome]) -> dict[FailureFingerprint, list[int]]:
    """Groups failures by fingerprint."""
    seen: dict[tuple[str, int, str], FailureFingerprint] = {}
    found: dict[FailureFingerprint, list[int]] = {}
    for outcome in outcomes:
        key = (outcome.failure, outcome.status, outcome.detail)
        fault = seen.get(key)
        if fault is None:
            detail = outcome.detail.replace("\0", "\ufffd")
            fault = seen[key] = failure_fingerprint(outcome.failure, outcome.status, detail)
        found.setdefault(fault, []).append(outcome.id)
    return found


def dead_letter(tx: Tx, dead: Iterable[Outcome], of_blocks: str, now: float) -> int:
    """Make requests of these blocks dead; returns how many."""
    groups = sorted_by_fingerprint(dead)
    _keep_words(tx, groups)
    dead_now = sum(
        tx.sql(
            f"UPDATE requests SET state = {RequestState.DEAD:d}, failures = failures + 1,"  # noqa: S608
            f" fault = {fault.id:d}, died_at = {now!r}, failure = {failure_word(fault.failure)}"
            f" WHERE id IN ({id_list(ids)}) AND block IN ({of_blocks})"
            f" AND state = {RequestState.QUEUED:d}"
        ).rowcount
        for fault, ids in groups.items()
    )
    count_deaths(tx, id_list(number for ids in groups.values() for number in ids), now)
    return dead_now


def count_deaths(tx: Tx, numbers: str, now: float) -> None:
    """Count requests that have just become dead in their failure groups."""
    for row in _by_group(tx, numbers):
        tx.deaths.died(row.fault, row.host, row.n, now)


def count_departures(tx: Tx, numbers: str) -> None:
    """Count requests that will not be dead any more; called while they are."""
    for row in _by_group(tx, numbers):
        tx.deaths.gone(row.fault, row.host, row.n)


def _by_group(tx: Tx, numbers: str) -> Sequence[sa.Row[Any]]:
    return tx.sql(
        "SELECT fault, host, COUNT(*) AS n FROM requests"  # noqa: S608 - integers
        f" WHERE id IN ({numbers}) AND state = {RequestState.DEAD:d} AND fault IS NOT NULL"
        " GROUP BY fault, host"
    ).all()


def name_fingerprint(tx: Tx, ids: Iterable[int], failure: str, detail: str, now: float) -> None:
    """Set the fingerprint of requests that are dead already, all for one reason."""
    numbers = id_list(ids)
    if not numbers:
        return
    fault = failure_fingerprint(failure, 0, detail)
    _keep_words(tx, [fault])
    tx.sql(
        f"UPDATE requests SET fault = {fault.id:d}, died_at = {now!r},"  # noqa: S608 - numbers
        f" failure = {failure_word(fault.failure)}"
        f" WHERE id IN ({numbers}) AND state = {RequestState.DEAD:d}"
    )
    count_deaths(tx, numbers, now)


def name_failure(tx: Tx, ids: Iterable[int], failure: str) -> None:
    """The failure class of requests that ended otherwise."""
    if numbers := id_list(ids):
        tx.sql(f"UPDATE requests SET failure = {failure_word(failure)} WHERE id IN ({numbers})")  # noqa: S608


def failure_word(failure: str) -> str:
    """A failure class as SQL; what is not a plain word is not stored."""
    plain = failure.isascii() and failure.isalpha() and len(failure) <= FAILURE_LENGTH
    return f"'{failure}'" if plain else "NULL"


def _keep_words(tx: Tx, found: Iterable[FailureFingerprint]) -> None:
    # Sorted, so that two centers with the same new fingerprints do not deadlock.
    rows = sorted((fault.id, fault.failure, fault.status, fault.text) for fault in found)
    tx.dialect.insert_new(tx.connection, faults, _COLUMNS, rows)


def own_bytes(tx: Tx, committed: Mapping[str, int], owned: Mapping[tuple[str, int], int]) -> None:
    """Record how far segments are committed, and how many bytes each run has in them.

    The row of the segment is locked in any case: a center that deletes segments waits for this
    one, or has decided before; then the report must be sent again, for another segment.
    """
    for name, end in sorted(committed.items()):
        known = sa.update(segments).where(segments.c.name == name, segments.c.deleted_at.is_(None))
        further = sa.case((segments.c.committed < end, end), else_=segments.c.committed)
        if tx.execute(known.values(committed=further)).rowcount:
            continue
        columns = ("name", "committed")
        if not tx.dialect.insert_new(tx.connection, segments, columns, [(name, end)]):
            _still_there(tx, name)
    rows = [(segment, run, n) for (segment, run), n in sorted(owned.items())]
    if rows:
        tx.dialect.add_up(tx.connection, segment_runs, ("segment", "run", "n"), rows)


def _still_there(tx: Tx, name: str) -> None:
    query = sa.select(segments.c.deleted_at).where(segments.c.name == name)
    if tx.execute(query.with_for_update()).scalar() is not None:
        raise Unavailable(f"the archive segment {name} was deleted; send the report again")
