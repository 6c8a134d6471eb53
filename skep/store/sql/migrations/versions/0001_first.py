"""The first schema, frozen: later changes of the schema are separate scripts.

Every step checks whether it is done already: MariaDB and MySQL commit each CREATE separately, so
a crash in the middle leaves a part behind and the script starts again from the top.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

MYSQL = ("mysql", "mariadb")
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
SECONDS = sa.Float(53)
DIGEST = sa.LargeBinary(16).with_variant(mysql.BINARY(16), *MYSQL)
DIGEST_32 = sa.LargeBinary(32).with_variant(mysql.BINARY(32), *MYSQL)
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL
)


def upgrade() -> None:
    _work()
    _results()
    _people_and_machines()
    _indexes()


def _work() -> None:
    _table(
        "runs",
        _key("no"),
        _column("id", _name(64), unique=True),
        _column("job", _name(200)),
        _column("state", _name(16)),
        _column("settings", BYTES),
        _column("created_at", SECONDS),
        sqlite_autoincrement=True,
    )
    _table(
        "requests",
        _key("id"),
        _column("run", BIG),
        _column("fingerprint", DIGEST),
        _column("uri", LONG_TEXT),
        _column("host", _name(255)),
        _column("priority", sa.SmallInteger()),
        _column("arguments", BYTES),
        _column("state", sa.SmallInteger()),
        _column("failures", sa.Integer()),
        sa.Column("block", BIG, nullable=True),
        _column("not_before", SECONDS),
        sa.Column("expires_at", SECONDS, nullable=True),
        _column("created_at", SECONDS),
        sa.UniqueConstraint("run", "fingerprint", name="requests_once"),
        sqlite_autoincrement=True,
    )
    _table(
        "blocks",
        _key("id"),
        _column("run", BIG),
        _column("priority", sa.SmallInteger()),
        _column("state", sa.SmallInteger()),
        _column("token", sa.Integer()),
        _column("losses", sa.Integer()),
        _column("agent", _name(64)),
        _column("target", _name(64)),
        _column("lease_until", SECONDS),
        _column("size", sa.Integer()),
        _column("open", sa.Integer()),
        _column("failed", sa.Integer()),
        _column("collected", sa.SmallInteger()),
        _column("created_at", SECONDS),
        sqlite_autoincrement=True,
    )
    _table("block_bodies", _given_key("block", BIG), _column("body", BYTES))
    _table(
        "block_history",
        _key("id"),
        _column("block", BIG),
        _column("state", sa.SmallInteger()),
        _column("at", SECONDS),
        _column("detail", LONG_TEXT),
    )


def _results() -> None:
    _table(
        "attempts",
        _given_key("request", BIG),
        _given_key("block", BIG),
        _given_key("token", sa.Integer()),
        _column("agent", _name(64)),
        _column("at", SECONDS),
        _column("failure", _name(16)),
        _column("status", sa.Integer()),
        _column("detail", LONG_TEXT),
        _column("elapsed_us", sa.BigInteger()),
        _column("sent", sa.BigInteger()),
        _column("received", sa.BigInteger()),
        _column("address", _name(64)),
        _column("final_uri", LONG_TEXT),
        _column("segment", _name(128)),
        _column("offset", sa.BigInteger()),
        _column("length", sa.BigInteger()),
        sqlite_with_rowid=False,
    )
    _table("segments", _given_key("name", _name(128)), _column("committed", sa.BigInteger()))
    _table(
        "tallies",
        _given_key("run", BIG),
        _given_key("state", sa.SmallInteger()),
        _column("n", sa.BigInteger()),
    )


def _people_and_machines() -> None:
    _table(
        "agents",
        _given_key("id", _name(64)),
        _column("registration", BYTES),
        _column("enabled", sa.SmallInteger()),
        _column("registered_at", SECONDS),
        _column("seen_at", SECONDS),
        _column("vitals", BYTES),
    )
    _table(
        "heartbeats",
        _key("id"),
        _column("agent", _name(64)),
        _column("at", SECONDS),
        _column("vitals", BYTES),
    )
    _table(
        "tokens",
        _given_key("digest", DIGEST_32),
        _column("role", _name(16)),
        _column("subject", _name(64)),
        _column("created_at", SECONDS),
        _column("revoked", sa.SmallInteger()),
    )
    _table(
        "alerts",
        _given_key("kind", _name(32)),
        _given_key("subject", _name(100)),
        _column("detail", LONG_TEXT),
        _column("times", sa.Integer()),
        _column("first_at", SECONDS),
        _column("last_at", SECONDS),
    )


def _indexes() -> None:
    _index("requests_waiting", "requests", "state", "run", "priority", "id", where="state = 0")
    _index("requests_delayed", "requests", "state", "not_before", where="state = 3")
    mortal = "expires_at IS NOT NULL AND state IN (0, 3)"
    _index("requests_mortal", "requests", "state", "expires_at", where=mortal)
    _index("blocks_claimable", "blocks", "state", "id", where="state IN (1, 16)")
    _index("blocks_using", "blocks", "state", "lease_until", where="state = 2")
    finished = "state IN (4, 8) AND collected = 0"
    _index("blocks_finished", "blocks", "run", "collected", "id", where=finished)
    _index("ix_block_history_block", "block_history", "block")
    _index("heartbeats_by_agent", "heartbeats", "agent", "at")
    _index("heartbeats_by_time", "heartbeats", "at")


def downgrade() -> None:
    """There is nothing before the first schema."""
    raise NotImplementedError("restore a backup instead")


def _table(name: str, *parts: Any, **options: Any) -> None:
    op.create_table(name, *parts, if_not_exists=True, **options)


def _index(name: str, table: str, *columns: str, where: str | None = None) -> None:
    # Checked here, because MySQL does not support `IF NOT EXISTS` for an index.
    there = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}
    if name not in there:
        only = sa.text(where) if where else None
        op.create_index(name, table, list(columns), sqlite_where=only, postgresql_where=only)


def _column(name: str, kind: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, **options)


def _key(name: str) -> sa.Column[Any]:
    """A number that the database assigns."""
    return sa.Column(name, BIG, primary_key=True, autoincrement=True)


def _given_key(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, *MYSQL)
