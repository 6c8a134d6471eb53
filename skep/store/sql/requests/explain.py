"""Facts why requests, blocks, runs and hosts wait. Implements `Waits` of `ports/waits.py`.

Run by centers only. Everything that grows with the history of a store is counted up to a limit or
sampled: a user gets an answer in milliseconds.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa

from skep.model.lane import HIGHEST, LOWEST
from skep.model.ledger import Ledger
from skep.model.states import BlockState, RequestState
from skep.model.unknown_objects import unknown_block, unknown_request
from skep.store.ports.waits import (
    COUNT_LIMIT,
    BlockFacts,
    BlockWait,
    ChainFacts,
    Delayed,
    DriverFacts,
    Failed,
    HostFacts,
    LastTry,
    RequestWait,
    RunWait,
)
from skep.store.sql.blocks.reclaim import SPLIT_AFTER
from skep.store.sql.blocks.rows import members_of
from skep.store.sql.engine.database import ACCEPTED, Database
from skep.store.sql.engine.predicates import FINISHED_BLOCKS, stored
from skep.store.sql.requests.chains import AFTER
from skep.store.sql.requests.explain_rows import (
    block_facts,
    host_facts,
    hosts_held,
    in_hands,
    run_by_number,
)
from skep.store.sql.runs.runs import row_of, run_in
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import attempts, requests, tallies
from skep.store.sql.schema.runs import drivers

#: Maximum hosts of a block, and delayed requests of a run, that are shown.
SHOWN = 20
#: Maximum delayed requests (of all runs, those due first) and requests of a run that are read.
SOONEST, SAMPLE = 1000, 500
_PRIORITIES = range(HIGHEST, LOWEST + 1)


class SqlWaits:
    """Reads many tables; writes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def request(self, request_id: int) -> RequestWait:
        return await self._database.read(lambda c: _request(c, request_id))

    async def block(self, block_id: int) -> BlockWait:
        return await self._database.read(lambda c: _block(c, block_id))

    async def run(self, run_id: str) -> RunWait:
        return await self._database.read(lambda c: _run(c, run_id))

    async def site(self, host: str) -> HostFacts:
        return await self._database.read(lambda c: host_facts(c, [host])[host])


def _request(connection: sa.Connection, request_id: int) -> RequestWait:
    row = connection.execute(sa.select(requests).where(requests.c.id == request_id)).first()
    if row is None:
        raise unknown_request(request_id)
    state = RequestState(row.state)
    in_block = row.block is not None and state is RequestState.QUEUED
    return RequestWait(
        id=row.id,
        uri=row.uri,
        priority=row.priority,
        state=state,
        failures=row.failures,
        not_before=row.not_before,
        expires_at=row.expires_at,
        created_at=row.created_at,
        run=run_by_number(connection, row.run),
        host=host_facts(connection, [row.host])[row.host],
        last=_last_try(connection, request_id),
        block=block_facts(connection, row.block) if in_block else None,
        before=_before(connection, row),
        chain=_chain(connection, row.place or ""),
    )


def _chain(connection: sa.Connection, place: str) -> ChainFacts | None:
    if not place.startswith(AFTER):
        return ChainFacts(place) if place else None
    first = int(place.removeprefix(AFTER))
    query = sa.select(requests.c.place).where(requests.c.id == first)
    return ChainFacts(connection.execute(query).scalar() or "", first)


def _last_try(connection: sa.Connection, request_id: int) -> LastTry | None:
    query = sa.select(attempts).where(attempts.c.request == request_id)
    query = query.order_by(attempts.c.at.desc(), attempts.c.token.desc()).limit(1)
    row = connection.execute(query).first()
    if row is None:
        return None
    return LastTry(row.at, row.agent, row.failure, row.status, row.detail)


def _before(connection: sa.Connection, row: Any) -> int:
    """Requests that come before this one, up to a limit."""
    if row.state == RequestState.WAITING:
        rank = (requests.c.run == row.run, requests.c.priority == row.priority)
        return _some(connection, stored(RequestState.WAITING), *rank, requests.c.id < row.id)
    if row.state != RequestState.DELAYED or row.failures:
        return 0
    parked = (stored(RequestState.DELAYED), requests.c.host == row.host)
    alike = (*parked, requests.c.priority == row.priority)
    at = requests.c.not_before
    found = _some(connection, *parked, requests.c.priority < row.priority)
    found += _some(connection, *alike, at < row.not_before)
    found += _some(connection, *alike, at == row.not_before, requests.c.id < row.id)
    return min(COUNT_LIMIT, found)


def _some(connection: sa.Connection, *conditions: Any) -> int:
    """Number of matching rows, counted up to the limit."""
    one = sa.literal_column("1", sa.Integer).label("one")
    found = sa.select(one).select_from(requests).where(*conditions)
    query = sa.select(sa.func.count()).select_from(found.limit(COUNT_LIMIT).subquery())
    return int(connection.execute(query).scalar_one())


def _block(connection: sa.Connection, block_id: int) -> BlockWait:
    facts = block_facts(connection, block_id)
    if facts is None:
        raise unknown_block(block_id)
    wanted = _hosts_of(connection, facts)
    found = host_facts(connection, wanted)
    ahead = None
    if facts.state is BlockState.USING:
        mine = in_hands(connection, blocks.c.agent == facts.agent, blocks.c.id < block_id)
        ahead = mine[0] if mine else None
    run = run_in(row_of(connection, facts.run))
    return BlockWait(facts, run, [found[host] for host in wanted], ahead)


def _hosts_of(connection: sa.Connection, facts: BlockFacts) -> list[str]:
    held = hosts_held(connection, facts.id, SHOWN)
    if held or facts.losses < SPLIT_AFTER or facts.size != 1:
        return held
    # Split off for one request: it claims its host when it is leased, and waits for it before.
    members = members_of(connection, [facts.id]).get(facts.id, [])
    query = sa.select(requests.c.host).where(requests.c.id.in_(members))
    return list(connection.execute(query).scalars())


def _run(connection: sa.Connection, run_id: str) -> RunWait:
    row = row_of(connection, run_id)
    ledger = _ledger(connection, row.no)
    delayed = _delayed(connection, row.no) if ledger.delayed else []
    # The arithmetic keeps the planner from using the index of all blocks of the run.
    mine = blocks.c.run + sa.literal_column("0") == row.no
    return RunWait(
        run=run_in(row),
        ledger=ledger,
        priorities=_priorities(connection, row.no) if ledger.waiting else (),
        in_hands=in_hands(connection, mine) if ledger.leased else [],
        delayed=delayed,
        hosts=host_facts(connection, {one.host for one in delayed}),
        driver=_driver(connection, row.no),
        # Blocks also count returned requests; those are pages of later blocks.
        unread=min(_unread(connection, row.no), ledger.done + ledger.dead),
        retried=_failed(connection, next((one.id for one in delayed if one.failures), None)),
        dead=_failed(connection, _typical_dead(connection, row.no)) if ledger.dead else None,
    )


def _typical_dead(connection: sa.Connection, run: int) -> int | None:
    """A request of the largest group of failures among the first in the index."""
    dead = (stored(RequestState.DEAD), requests.c.fault.is_not(None), requests.c.run == run)
    keys = (requests.c.fault, requests.c.host, requests.c.died_at)
    some = sa.select(requests.c.id, requests.c.fault, requests.c.host).where(*dead)
    found = connection.execute(some.order_by(*keys).limit(COUNT_LIMIT)).all()
    groups = Counter((row.fault, row.host) for row in found)
    if not groups:
        return None
    largest = groups.most_common(1)[0][0]
    return next(int(row.id) for row in found if (row.fault, row.host) == largest)


def _failed(connection: sa.Connection, request_id: int | None) -> Failed | None:
    if request_id is None:
        return None
    uri = connection.execute(sa.select(requests.c.uri).where(requests.c.id == request_id)).scalar()
    last = _last_try(connection, request_id)
    return None if uri is None or last is None else Failed(uri, last)


def _ledger(connection: sa.Connection, run: int) -> Ledger:
    query = sa.select(tallies.c.state, tallies.c.n).where(tallies.c.run == run)
    counts = {state: int(n) for state, n in connection.execute(query)}
    states = {state.name.lower(): counts.get(int(state), 0) for state in RequestState}
    return Ledger(counts.get(ACCEPTED, 0), **states)


def _priorities(connection: sa.Connection, run: int) -> tuple[int, ...]:
    """One index lookup for each priority."""
    row = connection.execute(sa.select(*(_waits_at(run, one) for one in _PRIORITIES))).one()
    return tuple(priority for priority, there in zip(_PRIORITIES, row, strict=True) if there)


def _waits_at(run: int, priority: int) -> sa.ColumnElement[bool]:
    mine = (requests.c.run == run, requests.c.priority == priority)
    found = sa.select(sa.literal_column("1", sa.Integer)).select_from(requests)
    return found.where(stored(RequestState.WAITING), *mine).exists().label(f"at_{priority + 1}")


def _delayed(connection: sa.Connection, run: int) -> list[Delayed]:
    """Those due first, when they are among the first of all runs; else an arbitrary sample."""
    columns = (requests.c.run, requests.c.id, requests.c.host, requests.c.failures)
    query = sa.select(*columns, requests.c.not_before, requests.c.state)
    soonest = query.where(stored(RequestState.DELAYED)).order_by(requests.c.not_before)
    sample = query.where(requests.c.run == run).order_by(requests.c.fingerprint)
    for some in (soonest.limit(SOONEST).subquery(), sample.limit(SAMPLE).subquery()):
        mine = sa.select(some.c.id, some.c.host, some.c.failures, some.c.not_before)
        mine = mine.where(some.c.run == run, some.c.state == int(RequestState.DELAYED))
        found = connection.execute(mine.order_by(some.c.not_before).limit(SHOWN)).all()
        if found:
            return [Delayed(*row) for row in found]
    return []


def _driver(connection: sa.Connection, run: int) -> DriverFacts | None:
    row = connection.execute(sa.select(drivers).where(drivers.c.run == run)).first()
    return None if row is None else DriverFacts(row.heard_at or 0.0, row.patience)


def _unread(connection: sa.Connection, run: int) -> int:
    found = sa.select(blocks.c.size).where(FINISHED_BLOCKS, blocks.c.run == run)
    some = found.order_by(blocks.c.id).limit(COUNT_LIMIT).subquery()
    return int(connection.execute(sa.select(sa.func.sum(some.c.size))).scalar() or 0)
