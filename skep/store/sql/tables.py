"""The schema, as SQLAlchemy tables. Run by centers only.

The unit of the queue is the block row: narrow, with its body in a table apart, so that a
change of state does not rewrite the body. A request row is written when it is accepted,
when it is packed and when it ends. Times are seconds since the epoch, states the numbers
of `model/states.py`.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

metadata = sa.MetaData()

MYSQL = ("mysql", "mariadb")
#: Engines whose indexes can leave rows out.
PARTIAL = ("sqlite", "postgresql")


def name_of(length: int) -> sa.String:
    """Short text in which every character and its case count, in every engine.

    MySQL would take both from the database's defaults, which may be Latin-1 and lenient.
    """
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, *MYSQL)


BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Exact = name_of(64)
Seconds = sa.Float(53)
Digest = sa.LargeBinary(16).with_variant(mysql.BINARY(16), *MYSQL)
Digest32 = sa.LargeBinary(32).with_variant(mysql.BINARY(32), *MYSQL)
Bytes = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)
LongText = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("no", BigId, primary_key=True, autoincrement=True),
    sa.Column("id", Exact, nullable=False, unique=True),
    sa.Column("job", name_of(200), nullable=False),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("settings", Bytes, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("reason", LongText, nullable=True),
    sa.Column("changed_at", Seconds, nullable=True),
    # Places that a person named, as msgpack; empty for most runs.
    sa.Column("named", Bytes, nullable=True),
    sa.Index("runs_ended", "state", "changed_at"),
    sqlite_autoincrement=True,
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
    # Of a dead request: what failed, and when it was given up.
    sa.Column("fault", sa.BigInteger, nullable=True),
    sa.Column("died_at", Seconds, nullable=True),
    # In a chain: the agent that it belongs to (or `>N`: whoever fetches request N), and the
    # request that the chain began with.
    sa.Column("place", Exact, nullable=True),
    sa.Column("root", sa.BigInteger, nullable=True),
    sa.UniqueConstraint("run", "fingerprint", name="requests_once"),
    sqlite_autoincrement=True,
)

_WAITING = sa.text("state = 0")
_DELAYED = sa.text("state = 3")
_DEAD = sa.text("state = 5")
_MORTAL = sa.text("expires_at IS NOT NULL AND state IN (0, 3)")

_AGAIN = sa.text("state = 0 AND failures > 0")


def _can_be_partial(*_: Any, dialect: sa.Dialect, **__: Any) -> bool:
    return dialect.name in PARTIAL


def _is_whole(*_: Any, dialect: sa.Dialect, **__: Any) -> bool:
    return dialect.name in MYSQL


def partial_index(name: str, predicate: sa.TextClause, *columns: sa.Column[Any]) -> sa.Index:
    """An index of the rows that fit, on engines that can. PostgreSQL's part is added when the
    index is made: as an argument it would import that engine into every center."""
    index = sa.Index(name, *columns, sqlite_where=predicate)

    def add_predicate(_: sa.Index, connection: sa.Connection, **__: Any) -> None:
        if connection.dialect.name == "postgresql":
            index.dialect_options["postgresql"]["where"] = predicate

    sa.event.listen(index, "before_create", add_predicate)
    return index


def _where(name: str, predicate: sa.TextClause, *columns: sa.Column[Any]) -> None:
    """An index of the requests that fit, without the state: PostgreSQL takes what a predicate
    says out of the search, and would then read an index that begins with it from end to end.
    MySQL has no partial indexes: there it begins with the state and holds every row."""
    partial_index(name, predicate, *columns).ddl_if(callable_=_can_be_partial)
    sa.Index(name, requests.c.state, *columns).ddl_if(callable_=_is_whole)


_where("requests_waiting", _WAITING, requests.c.run, requests.c.priority, requests.c.id)
_where("requests_delayed", _DELAYED, requests.c.not_before)
_where("requests_mortal", _MORTAL, requests.c.expires_at)
_where("requests_parked", _DELAYED, requests.c.host, requests.c.priority, requests.c.not_before)
# What waits and has failed before, for dispatches of those alone; MySQL goes without, because
# there it would hold every row once more.
partial_index("requests_again", _AGAIN, requests.c.run, requests.c.priority, requests.c.id).ddl_if(
    callable_=_can_be_partial
)

# Everything that a list of failures needs, so that it never touches the rows. The state comes
# last: PostgreSQL drops what the predicate says anyway, and could not begin with it.
partial_index(
    "requests_dead",
    _DEAD,
    requests.c.run,
    requests.c.fault,
    requests.c.host,
    requests.c.died_at,
    requests.c.state,
)

blocks = sa.Table(
    "blocks",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("run", BigId, nullable=False),
    sa.Column("priority", sa.SmallInteger, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("losses", sa.Integer, nullable=False),
    sa.Column("agent", Exact, nullable=False),
    sa.Column("target", Exact, nullable=False),
    sa.Column("lease_until", Seconds, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("open", sa.Integer, nullable=False),
    sa.Column("failed", sa.Integer, nullable=False),
    sa.Column("collected", sa.SmallInteger, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("expires_at", Seconds, nullable=True),
    # No lease is renewed beyond this; every answer moves it on. NULL = no bound.
    sa.Column("answer_by", Seconds, nullable=True),
    sa.Index("blocks_of_run", "run", "id"),
    sqlite_autoincrement=True,
)

_CLAIMABLE = sa.text("state IN (1, 16)")
_USING = sa.text("state = 2")
_FINISHED = sa.text("state IN (4, 8) AND collected = 0")

partial_index("blocks_claimable", _CLAIMABLE, blocks.c.state, blocks.c.id)
partial_index("blocks_using", _USING, blocks.c.state, blocks.c.lease_until)
partial_index("blocks_finished", _FINISHED, blocks.c.run, blocks.c.collected, blocks.c.id)

block_bodies = sa.Table(
    "block_bodies",
    metadata,
    sa.Column("block", BigId, primary_key=True, autoincrement=False),
    sa.Column("body", Bytes, nullable=False),
)

block_history = sa.Table(
    "block_history",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("block", BigId, nullable=False, index=True),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("detail", LongText, nullable=False),
)

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

drivers = sa.Table(
    "drivers",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("token", sa.Integer, nullable=False),
    # Last sign of life, and how long the driver may be silent; NULL = it has not said.
    sa.Column("heard_at", Seconds, nullable=True),
    sa.Column("patience", Seconds, nullable=True),
    # What somebody asks of the driver's process; NULL = nothing.
    sa.Column("asked", name_of(16), nullable=True),
)

items = sa.Table(
    "items",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("run", BigId, nullable=False),
    sa.Column("request", BigId, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("data", Bytes, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.UniqueConstraint("request", "n", name="items_once"),
    sa.Index("items_of_run", "run", "id"),
    sqlite_autoincrement=True,
)

segments = sa.Table(
    "segments",
    metadata,
    sa.Column("name", name_of(128), primary_key=True),
    sa.Column("committed", sa.BigInteger, nullable=False),
    # Decided upon: nothing may point into it any more. Gone: its file is deleted, too.
    sa.Column("deleted_at", Seconds, nullable=True),
    sa.Column("gone", sa.SmallInteger, nullable=True),
)

tallies = sa.Table(
    "tallies",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("state", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("n", sa.BigInteger, nullable=False),
)

# Counted with every report: answers by status, failures by kind, bytes, agents, and answers in
# the last minute. One row per run and name, so that a large run costs no more than a small one.
figures = sa.Table(
    "figures",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("name", name_of(80), primary_key=True),
    sa.Column("n", sa.BigInteger, nullable=False),
)

agents = sa.Table(
    "agents",
    metadata,
    sa.Column("id", Exact, primary_key=True),
    sa.Column("registration", Bytes, nullable=False),
    sa.Column("enabled", sa.SmallInteger, nullable=False),
    sa.Column("registered_at", Seconds, nullable=False),
    sa.Column("seen_at", Seconds, nullable=False),
    sa.Column("vitals", Bytes, nullable=False),
    # Raised by every process that registers, and the mark that its folder keeps.
    sa.Column("session", sa.BigInteger, nullable=True),
    sa.Column("mark", Exact, nullable=True),
    # What people say about it: labels, why it gets no work, whether an order is open.
    sa.Column("labels", Bytes, nullable=True),
    sa.Column("aside", name_of(16), nullable=True),
    sa.Column("pending", sa.SmallInteger, nullable=True),
    # It has come with a credential of its own, so the shared one is not enough any more.
    sa.Column("bound", sa.SmallInteger, nullable=True),
    # Anything but its beats: centers read what is new, and not everybody every second.
    sa.Column("changed_at", Seconds, nullable=True),
)

heartbeats = sa.Table(
    "heartbeats",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("agent", Exact, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("vitals", Bytes, nullable=False),
    sa.Index("heartbeats_by_agent", "agent", "at"),
    sa.Index("heartbeats_by_time", "at"),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("digest", Digest32, primary_key=True),
    sa.Column("role", name_of(16), nullable=False),
    sa.Column("subject", Exact, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("revoked", sa.SmallInteger, nullable=False),
    sa.Column("note", name_of(200), nullable=True),
    sa.Column("expires_at", Seconds, nullable=True),
    # What an agent that joins with it gets; and who that was.
    sa.Column("grant_", Bytes, nullable=True),
    sa.Column("used_by", Exact, nullable=True),
    sa.Column("used_at", Seconds, nullable=True),
)

sites = sa.Table(
    "sites",
    metadata,
    sa.Column("host", name_of(255), primary_key=True),
    # The operator's rule; NULL leaves it to the defaults.
    sa.Column("rate", sa.Float(53), nullable=True),
    sa.Column("concurrency", sa.Integer, nullable=True),
    sa.Column("robots", sa.SmallInteger, nullable=True),
    # What was learnt.
    sa.Column("delay", sa.Float(53), nullable=False),
    sa.Column("crawl_delay", sa.Float(53), nullable=False),
    sa.Column("not_before", Seconds, nullable=False),
    sa.Column("cooling_until", Seconds, nullable=False),
    sa.Column("reason", name_of(200), nullable=False),
    sa.Column("strikes", sa.Integer, nullable=False),
    # What was done.
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("failed", sa.BigInteger, nullable=False),
    sa.Column("refused", sa.BigInteger, nullable=False),
    sa.Column("barred", sa.BigInteger, nullable=False),
    sa.Column("deferred", sa.BigInteger, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False),
    sa.Column("elapsed_us", sa.BigInteger, nullable=False),
    sa.Column("last_at", Seconds, nullable=False),
)

# A host with a pace is in one open block at a time. A hold without a block was let go: the
# dispatcher wakes what waits for the host and forgets it.
site_holds = sa.Table(
    "site_holds",
    metadata,
    sa.Column("host", name_of(255), primary_key=True),
    sa.Column("block", BigId, nullable=True, index=True),
    # With a block: when it should be through. Without: when the dispatcher looks at it.
    sa.Column("until", Seconds, nullable=False),
    # Seconds between two starts, for when nobody says when the next is in order.
    sa.Column("spacing", sa.Float(53), nullable=False),
)

# Tries for robots.txt that failed: a run fails its requests to a host after some of them.
host_probes = sa.Table(
    "host_probes",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("host", name_of(255), primary_key=True),
    sa.Column("probes", sa.Integer, nullable=False),
    # Of the last try; with `given_up`, of the last request that failed for it.
    sa.Column("at", Seconds, nullable=False),
    sa.Column("failure", name_of(16), nullable=False),
    sa.Column("detail", name_of(500), nullable=False),
    sa.Column("given_up", sa.SmallInteger, nullable=False),
    sa.Index("host_probes_host", "host"),
)

alerts = sa.Table(
    "alerts",
    metadata,
    sa.Column("kind", name_of(32), primary_key=True),
    sa.Column("subject", name_of(100), primary_key=True),
    sa.Column("detail", LongText, nullable=False),
    sa.Column("times", sa.Integer, nullable=False),
    sa.Column("first_at", Seconds, nullable=False),
    sa.Column("last_at", Seconds, nullable=False),
)
