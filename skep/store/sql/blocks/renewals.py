"""Renews the leases of many agents at once. Run by centers only.

Every heartbeat brings some: on PostgreSQL one statement renews all that arrived at nearly the
same time. Other databases need two. A lease is not renewed beyond the answer deadline of its
run: then it expires, and `reap` gives the block to another agent.

It never waits for a locked block, most likely locked by a report of the same agent: waiting
would delay all other agents, and deadlock with reports that lock blocks in their own order. Such
a block is skipped, and renewed by the next heartbeat if it is still leased.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from skep.model.block import Held
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.predicates import USING_BLOCKS, in_list
from skep.store.sql.schema.blocks import blocks

#: A block, its token, and the agent that claims to hold it.
_Claim = tuple[int, int, str]
_ON_POSTGRES = f"""
WITH said (id, token, agent) AS (
  SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[])
), mine AS (
  SELECT blocks.id, said.token, said.agent FROM blocks JOIN said
    ON said.id = blocks.id AND said.token = blocks.token AND said.agent = blocks.agent
  WHERE {USING_BLOCKS} FOR UPDATE OF blocks SKIP LOCKED
)
UPDATE blocks SET lease_until = LEAST(COALESCE(blocks.answer_by, %s), %s)
FROM mine WHERE blocks.id = mine.id RETURNING mine.id, mine.token, mine.agent
"""  # noqa: S608 - no user input


def renew_all(tx: Tx, asks: Sequence[tuple[str, Sequence[Held]]], until: float) -> list[list[int]]:
    """For each agent, those of its blocks that it no longer holds."""
    said = {(item.block, item.token, agent) for agent, held in asks for item in held}
    renew = _on_postgres if tx.dialect.feeds_statements else _in_two
    mine = renew(tx, sorted(said), until)
    if said - mine:
        mine |= _in_hands(tx, said - mine)
    return [
        [item.block for item in held if (item.block, item.token, agent) not in mine]
        for agent, held in asks
    ]


def _on_postgres(tx: Tx, said: Sequence[_Claim], until: float) -> set[_Claim]:
    columns = [list(column) for column in zip(*said, strict=True)]
    rows = tx.connection.exec_driver_sql(_ON_POSTGRES, (*columns, until, until))
    return {(row[0], row[1], row[2]) for row in rows}


def _in_two(tx: Tx, said: Sequence[_Claim], until: float) -> set[_Claim]:
    free = _claims(said).with_for_update(skip_locked=True)
    mine = {(row.id, row.token, row.agent) for row in tx.execute(free)} & set(said)
    if mine:
        bound = sa.func.coalesce(blocks.c.answer_by, until)
        change = sa.update(blocks).where(in_list(blocks.c.id, (block for block, _, _ in mine)))
        tx.execute(change.values(lease_until=sa.case((bound < until, bound), else_=until)))
    return mine


def _in_hands(tx: Tx, said: Collection[_Claim]) -> set[_Claim]:
    """Those that were skipped: still leased, as far as committed rows show."""
    return {(row.id, row.token, row.agent) for row in tx.execute(_claims(said))} & set(said)


def _claims(said: Collection[_Claim]) -> sa.Select[tuple[int, int, str]]:
    query = sa.select(blocks.c.id, blocks.c.token, blocks.c.agent)
    return query.where(in_list(blocks.c.id, (block for block, _, _ in said))).where(USING_BLOCKS)
