"""Writes outcomes into rows: the end of a request. The hot path of every download.

Run by centers only, inside one transaction for many blocks. The token decides: a report under
another token, or for a block that the agent does not hold, changes nothing. An outcome of a
request that has ended before changes nothing either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from skep.errors import InvalidInput
from skep.model.hosts.politeness import Politeness
from skep.model.request import Outcome
from skep.model.states import BlockState, RequestState
from skep.store.ports.blocks import Settlement, SettleResult
from skep.store.sql.blocks.rows import end_requests, members_of, note_history, open_members
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.engine.row_inserts import Row
from skep.store.sql.hosts.host_reports import HostReports
from skep.store.sql.requests.dead_letter import dead_letter, failure_word, own_bytes
from skep.store.sql.runs.answer_deadlines import answer_by
from skep.store.sql.runs.figures import count_outcomes
from skep.store.sql.runs.runs import hold_runs
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import attempts

#: Rows of one statement; each row costs a comparison with every other one.
DELAY_CHUNK = 250
ATTEMPT_COLUMNS = tuple(column.name for column in attempts.columns)


@dataclass(slots=True)
class _Block:
    """A block row while its reports are applied."""

    id: int
    run: int
    state: int
    token: int
    agent: str
    open: int
    size: int
    failed: int
    #: Its run was cancelled or finished: failed requests are not retried.
    ended: bool = False
    run_id: str = ""
    #: Deadline for the agent's next answer; None = no deadline.
    answer_by: float | None = None
    #: Some of its requests ended in an earlier transaction.
    begun: bool = False
    touched: bool = False
    #: Requests that this call deferred.
    deferred: int = 0
    members: frozenset[int] = frozenset()
    #: Requests whose outcome is in this call.
    seen: set[int] = field(default_factory=set)

    def holds(self, settlement: Settlement) -> bool:
        return self.token == settlement.report.token and self.agent == settlement.agent


@dataclass(slots=True)
class _Writes:
    """All writes of one call, collected first and written with few statements."""

    done: list[int] = field(default_factory=list)
    dead: list[Outcome] = field(default_factory=list)
    #: Requests of ended runs that were never attempted.
    untried: list[int] = field(default_factory=list)
    #: By failure class; delayed ones with the time of the next attempt.
    cancelled: dict[str, list[int]] = field(default_factory=dict)
    delayed: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    #: Requests whose host is paused: due at that time, without counting a failure.
    deferred: list[tuple[int, float]] = field(default_factory=list)
    attempts: list[Row] = field(default_factory=list)
    committed: dict[str, int] = field(default_factory=dict)
    #: (segment, run) -> bytes.
    owned: Counter[tuple[str, int]] = field(default_factory=Counter)


def settle_all(
    tx: Tx, settlements: Sequence[Settlement], now: float, politeness: Politeness
) -> list[SettleResult]:
    """Apply every report; one result each, in order."""
    found = _lock_blocks(tx, {item.report.block for item in settlements}, now)
    writes = _Writes()
    using = [block.id for block in found.values() if block.state == BlockState.USING]
    book = HostReports(tx, using, now, politeness)
    verdicts = [_settle(tx, found, item, writes, now, book) for item in settlements]
    touched = [block for block in found.values() if block.touched]
    if touched:
        _write_requests(tx, writes, touched, now)
        tx.dialect.insert_many(tx.connection, attempts, ATTEMPT_COLUMNS, writes.attempts)
        _write_blocks(tx, touched, now)
        own_bytes(tx, writes.committed, writes.owned)
        book.write(block.id for block in touched if not block.open)
    return verdicts


def _lock_blocks(tx: Tx, block_ids: Iterable[int], now: float) -> dict[int, _Block]:
    query = (
        sa.select(blocks.c.id, blocks.c.run, blocks.c.state, blocks.c.token, blocks.c.agent)
        .add_columns(blocks.c.open, blocks.c.size, blocks.c.failed)
        .where(in_list(blocks.c.id, block_ids))
        .order_by(blocks.c.id)
        .with_for_update()
    )
    rows = (_Block(*tuple(row)) for row in tx.execute(query))
    found = {block.id: block for block in rows}
    _look_inside(tx, [b for b in found.values() if b.state == BlockState.USING], now)
    return found


def _look_inside(tx: Tx, found: list[_Block], now: float) -> None:
    if not found:
        return
    members = members_of(tx.connection, [block.id for block in found])
    of = hold_runs(tx, {block.run for block in found})
    times = {number: answer_by(run, now) for number, run in of.items()}
    for block in found:
        block.members = frozenset(members[block.id])
        block.begun = block.open < block.size
        run = of[block.run]
        block.ended = run.ended
        block.run_id = run.id
        if not block.ended:
            block.answer_by = times[block.run]


def _settle(
    tx: Tx,
    found: dict[int, _Block],
    item: Settlement,
    writes: _Writes,
    now: float,
    book: HostReports,
) -> SettleResult:
    report = item.report
    block = found.get(report.block)
    if block is None:
        return SettleResult(report.block, "unknown")
    if not block.holds(item):
        return SettleResult(block.id, "stale")
    if block.state != BlockState.USING:
        # Same agent and token, after the end: the answer was lost and this is a duplicate.
        # (Taking a block back removes the agent's name.)
        return SettleResult(block.id, "duplicate")
    outcomes = _unseen(tx, block, report.outcomes)
    dead = _sort_out(tx, block, item, outcomes, writes)
    writes.attempts += _attempt_rows(item, outcomes, now)
    count_outcomes(tx, block.run, item.agent, outcomes, now)
    if item.placed.segment and outcomes:
        end = item.placed.offset + len(report.frames)
        known = writes.committed.get(item.placed.segment, 0)
        writes.committed[item.placed.segment] = max(known, end)
        kept = sum(outcome.length for outcome in outcomes)
        writes.owned[item.placed.segment, block.run] += kept
    news = _take_notes(tx, block, item, outcomes, writes, book) if report.sites else False
    _advance(tx, block, writes, final=report.final)
    stored = bool(outcomes) or report.final or news
    verdict = "stored" if stored else "duplicate"
    return SettleResult(block.id, verdict, len(outcomes), block.run_id, dead)


def _take_notes(
    tx: Tx,
    block: _Block,
    item: Settlement,
    outcomes: list[Outcome],
    writes: _Writes,
    book: HostReports,
) -> bool:
    """Apply the notes about hosts. False when nothing was new: a duplicate report."""
    report, notes = item.report, item.report.sites
    put_off = _still_open(tx, block, {number for note in notes for number in note.deferred})
    if not (outcomes or put_off or report.final or book.lets_go(block.id, notes)):
        return False
    counts: list[int] = []
    for note in notes:
        mine = put_off.intersection(note.deferred)
        put_off -= mine
        when = book.hear(block.id, block.run, note)
        _defer(tx, block, mine, when, writes)
        counts.append(len(mine))
    if len(outcomes) == len(report.outcomes):
        book.count(notes, counts)
    else:
        book.count_some(notes, counts, outcomes)
    return True


def _still_open(tx: Tx, block: _Block, ids: set[int]) -> set[int]:
    """Requests that an agent defers: of this block, and open when the report arrived."""
    if foreign := ids - block.members:
        raise _not_in(block.id, len(foreign))
    fresh = ids - block.seen
    if fresh and block.begun:
        fresh &= open_members(tx.connection, block.id)
    block.seen |= fresh
    return fresh


def _defer(tx: Tx, block: _Block, ids: set[int], when: float, writes: _Writes) -> None:
    """They leave the block without an attempt; in an ended run they end."""
    block.open -= len(ids)
    if block.ended:
        block.failed += len(ids)
        writes.untried += ids
        tx.move(block.run, RequestState.LEASED, RequestState.CANCELLED, len(ids))
    else:
        block.deferred += len(ids)
        writes.deferred += ((number, when) for number in ids)
        tx.move(block.run, RequestState.LEASED, RequestState.DELAYED, len(ids))


def _unseen(tx: Tx, block: _Block, outcomes: list[Outcome]) -> list[Outcome]:
    """Outcomes of requests that are still open in this block, each request once."""
    by_id = {outcome.id: outcome for outcome in outcomes}
    if len(by_id) < len(outcomes):  # the first outcome of a request counts
        by_id = {outcome.id: outcome for outcome in reversed(outcomes)}
    foreign = by_id.keys() - block.members
    if foreign:
        raise _not_in(block.id, len(foreign))
    wanted: Iterable[int] = by_id.keys() - block.seen if block.seen else by_id.keys()
    if block.begun and wanted:
        still_open = tx.sql(
            f"SELECT id FROM requests WHERE id IN ({id_list(wanted)})"  # noqa: S608 - integers
            f" AND block = {block.id:d} AND state = {RequestState.QUEUED:d}"
        )
        wanted = list(still_open.scalars())
    block.seen.update(wanted)
    return [by_id[number] for number in wanted]


def _sort_out(
    tx: Tx, block: _Block, item: Settlement, outcomes: list[Outcome], writes: _Writes
) -> int:
    """Returns how many became dead."""
    failed = [outcome for outcome in outcomes if outcome.failure]
    if not failed:
        done = [outcome.id for outcome in outcomes]
    else:
        done = [outcome.id for outcome in outcomes if not outcome.failure]
    writes.done += done
    again_at = {} if block.ended else item.retry.again_at
    delayed = [outcome for outcome in failed if outcome.id in again_at]
    ended = [outcome for outcome in failed if outcome.id not in again_at]
    for outcome in delayed:
        writes.delayed.setdefault(outcome.failure, []).append((outcome.id, again_at[outcome.id]))
    end = RequestState.CANCELLED if block.ended else RequestState.DEAD
    if block.ended:
        for outcome in ended:
            writes.cancelled.setdefault(outcome.failure, []).append(outcome.id)
    else:
        writes.dead += ended
    block.touched = True
    block.open -= len(outcomes)
    block.failed += len(failed)
    tx.tally(block.run, RequestState.LEASED, -len(outcomes))
    tx.tally(block.run, RequestState.DONE, len(done))
    tx.tally(block.run, RequestState.DELAYED, len(delayed))
    tx.tally(block.run, end, len(ended))
    return 0 if block.ended else len(ended)


def _attempt_rows(item: Settlement, outcomes: list[Outcome], now: float) -> list[Row]:
    block, token, agent = item.report.block, item.report.token, item.agent
    segment, base = item.placed.segment, item.placed.offset
    return [
        (
            o.id,
            block,
            token,
            agent,
            now,
            o.failure,
            o.status,
            o.detail.replace("\0", "\ufffd") if o.detail else "",
            o.elapsed_us,
            o.sent,
            o.received,
            o.address,
            o.final_uri.replace("\0", "%00") if o.final_uri else "",
            segment if o.length else "",
            base + o.offset if o.length else 0,
            o.length,
        )
        for o in outcomes
    ]


def _advance(tx: Tx, block: _Block, writes: _Writes, *, final: bool) -> None:
    """The block's own state after a report."""
    if final and block.open and block.ended:
        _give_up_rest(tx, block, writes)
    if block.open == 0:
        block.state = BlockState.FAILED if block.failed else BlockState.SUCCESS
    elif final:
        # The agent is done with it although some are open: they go to another agent.
        block.state = BlockState.RETRY
        tx.move(block.run, RequestState.LEASED, RequestState.QUEUED, block.open)


def _give_up_rest(tx: Tx, block: _Block, writes: _Writes) -> None:
    """No agent takes a block of an ended run again: its open requests end with it."""
    rest = open_members(tx.connection, block.id) - block.seen
    writes.untried += rest
    block.open -= len(rest)
    block.failed += len(rest)
    tx.move(block.run, RequestState.LEASED, RequestState.CANCELLED, len(rest))


def _write_requests(tx: Tx, writes: _Writes, touched: list[_Block], now: float) -> None:
    of_blocks = id_list(block.id for block in touched)
    end_requests(tx, writes.untried, RequestState.CANCELLED)
    if writes.dead:
        _expect(dead_letter(tx, writes.dead, of_blocks, now), len(writes.dead))
    _end(tx, writes.done, of_blocks, f"state = {RequestState.DONE:d}")
    for failure, ids in writes.cancelled.items():
        _end(tx, ids, of_blocks, f"state = {RequestState.CANCELLED:d}, {_failed(failure)}")
    for failure, delayed in writes.delayed.items():
        _delay(tx, delayed, of_blocks, f"{_failed(failure)}, ")
    _delay(tx, writes.deferred, of_blocks)


def _failed(failure: str) -> str:
    return f"failures = failures + 1, failure = {failure_word(failure)}"


def _end(tx: Tx, ids: list[int], of_blocks: str, change: str) -> None:
    if ids:
        changed = tx.sql(
            f"UPDATE requests SET {change}"  # noqa: S608 - integers and words of our own
            f" WHERE id IN ({id_list(ids)}) AND block IN ({of_blocks})"
            f" AND state = {RequestState.QUEUED:d}"
        ).rowcount
        _expect(changed, len(ids))


def _delay(tx: Tx, delayed: list[tuple[int, float]], of_blocks: str, change: str = "") -> None:
    """Updates many rows, each with its own time, with few statements: a host that is down fails
    thousands of requests."""
    for start in range(0, len(delayed), DELAY_CHUNK):
        chunk = delayed[start : start + DELAY_CHUNK]
        times = " ".join(f"WHEN {number:d} THEN {float(when)!r}" for number, when in chunk)
        changed = tx.sql(
            f"UPDATE requests SET state = {RequestState.DELAYED:d},"  # noqa: S608 - numbers
            f" {change}not_before = CASE id {times} END, block = NULL"
            f" WHERE id IN ({id_list(number for number, _ in chunk)})"
            f" AND block IN ({of_blocks}) AND state = {RequestState.QUEUED:d}"
        ).rowcount
        _expect(changed, len(chunk))


def _expect(changed: int, wanted: int) -> None:
    # `_unseen` ensured it under the block's lock; this is a second check.
    if changed != wanted:
        raise RuntimeError(f"{wanted} outcomes changed {changed} requests; nothing was stored")


def _not_in(block: int, count: int) -> InvalidInput:
    return InvalidInput(
        f"the report of block {block} names {count} requests that are not in it; "
        "nothing of this call was stored"
    )


def _write_blocks(tx: Tx, touched: list[_Block], now: float) -> None:
    by_change: dict[tuple[int, int, int, float | None], list[int]] = {}
    for block in touched:
        # An answer extends the deadline for the next one; an ended block needs none.
        by = block.answer_by if block.open and block.state == BlockState.USING else None
        by_change.setdefault((block.state, block.open, block.failed, by), []).append(block.id)
    for (state, still_open, failed, by), ids in by_change.items():
        more_time = f", answer_by = {by!r}" if by is not None else ""
        tx.sql(
            f"UPDATE blocks SET state = {state:d}, {tx.dialect.quote('open')} = {still_open:d},"  # noqa: S608
            f" failed = {failed:d}{more_time} WHERE id IN ({id_list(ids)})"
        )
    for state in (BlockState.SUCCESS, BlockState.FAILED, BlockState.RETRY):
        here = [block for block in touched if block.state == state]
        whole = [block.id for block in here if not block.deferred]
        note_history(tx, whole, state, now, _HISTORY[state])
        rest = [block.id for block in here if block.deferred]
        note_history(tx, rest, state, now, f"{_HISTORY[state]}; some requests wait for their hosts")


_HISTORY = {
    BlockState.SUCCESS: "every request was downloaded",
    BlockState.FAILED: "reported, with failed requests",
    BlockState.RETRY: "reported in part; the rest will be leased again",
}
