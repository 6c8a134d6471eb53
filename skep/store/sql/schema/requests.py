"""Tables of requests: their rows, attempts and running counts. Run by centers only.

Indexes are partial where the engine supports it; MySQL indexes all rows.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.store.sql.schema.columns import (
    BigId,
    Bytes,
    Digest,
    Exact,
    LongText,
    Seconds,
    can_be_partial,
    is_whole,
    metadata,
    name_of,
    partial_index,
)

requests = sa.Table(
    "requests",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("run", BigId, nullable=False),
    sa.Column("fingerprint", Digest, nullable=False),
    sa.Column("uri", LongText, nullable=False),
    sa.Column("host", name_of(255), nullable=False),
    sa.Column("priority", sa.SmallInteger, nullable=False),
    sa.Column("arguments", Bytes, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("block", BigId, nullable=True),
    sa.Column("not_before", Seconds, nullable=False),
    sa.Column("expires_at", Seconds, nullable=True),
    sa.Column("created_at", Seconds, nullable=False),
    # Of a dead request: its failure fingerprint, and when it died.
    sa.Column("fault", sa.BigInteger, nullable=True),
    sa.Column("died_at", Seconds, nullable=True),
    # In a chain: the agent that it belongs to (or `>N`: the agent that fetches request N), and
    # the first request of the chain.
    sa.Column("place", Exact, nullable=True),
    sa.Column("root", sa.BigInteger, nullable=True),
    # Failure class of the last attempt; old once the request is done.
    sa.Column("failure", name_of(16), nullable=True),
    sa.UniqueConstraint("run", "fingerprint", name="requests_once"),
    sqlite_autoincrement=True,
)

_WAITING = sa.text("state = 0")
_DELAYED = sa.text("state = 3")
_DEAD = sa.text("state = 5")
_FAILED = sa.text("failure IS NOT NULL AND state <> 4")
_CANCELLED = sa.text("state = 6")
_EXPIRED = sa.text("state = 7")
_MORTAL = sa.text("expires_at IS NOT NULL AND state IN (0, 3)")

_AGAIN = sa.text("state = 0 AND failures > 0")


def _where(name: str, predicate: sa.TextClause, *columns: sa.Column[Any]) -> None:
    """An index of the matching requests, without the state: PostgreSQL removes the terms of a
    predicate from the search, and would then read an index that starts with the state from end
    to end. MySQL has no partial indexes: there it starts with the state and has every row."""
    partial_index(name, predicate, *columns).ddl_if(callable_=can_be_partial)
    sa.Index(name, requests.c.state, *columns).ddl_if(callable_=is_whole)


_where("requests_waiting", _WAITING, requests.c.run, requests.c.priority, requests.c.id)
_where("requests_delayed", _DELAYED, requests.c.not_before)
_where("requests_mortal", _MORTAL, requests.c.expires_at)
_where("requests_parked", _DELAYED, requests.c.host, requests.c.priority, requests.c.not_before)
# Waiting requests that failed before, for dispatches of those alone; not on MySQL, where it
# would contain every row once more.
partial_index("requests_again", _AGAIN, requests.c.run, requests.c.priority, requests.c.id).ddl_if(
    callable_=can_be_partial
)

# Every column that a list of failures needs, so that it never reads the rows. The state comes
# last: PostgreSQL drops the terms of the predicate, and could not use an index that starts so.
partial_index(
    "requests_dead",
    _DEAD,
    requests.c.run,
    requests.c.fault,
    requests.c.host,
    requests.c.died_at,
    requests.c.state,
)

# For lists, by failure class, end, host and failure group, in the order of ids. They hold only
# requests that failed: one that is accepted and done writes none of them. MySQL, where each
# would contain every row, searches without them.
for _name, _predicate, _columns in (
    ("requests_failed", _FAILED, (requests.c.failure, requests.c.id)),
    # Without the state, for which SQLite would prefer them to any other index.
    ("requests_dead_ids", _DEAD, (requests.c.id,)),
    ("requests_cancelled", _CANCELLED, (requests.c.id,)),
    ("requests_expired", _EXPIRED, (requests.c.id,)),
    ("requests_dead_hosts", _DEAD, (requests.c.host, requests.c.id)),
    ("requests_dead_groups", _DEAD, (requests.c.fault, requests.c.host, requests.c.id)),
):
    partial_index(_name, _predicate, *_columns).ddl_if(callable_=can_be_partial)


attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("request", BigId, primary_key=True, autoincrement=False),
    sa.Column("block", BigId, primary_key=True, autoincrement=False),
    sa.Column("token", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("agent", Exact, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("failure", name_of(16), nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("detail", LongText, nullable=False),
    sa.Column("elapsed_us", sa.BigInteger, nullable=False),
    sa.Column("sent", sa.BigInteger, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False),
    sa.Column("address", Exact, nullable=False),
    sa.Column("final_uri", LongText, nullable=False),
    sa.Column("segment", name_of(128), nullable=False),
    sa.Column("offset", sa.BigInteger, nullable=False),
    sa.Column("length", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)


tallies = sa.Table(
    "tallies",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("state", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("n", sa.BigInteger, nullable=False),
)


# Between which ids the requests of a run are (kind 0, its number), and those that were accepted
# in a minute (kinds from 1, minutes since 1970; each process has one, so that no center waits
# for the row of another). Written once per call that accepts requests: lists find a run or a
# time without an index that every request would have to write.
request_spans = sa.Table(
    "request_spans",
    metadata,
    sa.Column("kind", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("low", sa.BigInteger, nullable=False),
    sa.Column("high", sa.BigInteger, nullable=False),
)
