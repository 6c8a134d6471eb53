"""Running counts that many centers increment: tallies, figures, counts of hosts.

A transaction collects its counts and writes them at its very end. On PostgreSQL and MariaDB
they are sent with COMMIT in one message: the server locks these shared rows, adds and commits
without waiting for the center, so a frozen center never holds them. Run by centers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import sqlalchemy as sa

from skep.store.sql.engine.server_sessions import translated


class Sums(NamedTuple):
    """Rows of one table, sorted by key, so that two centers lock them in the same order."""

    table: sa.Table
    #: The key first. Columns in neither `adds` nor `sets` are written for new rows only.
    columns: Sequence[str]
    keys: int
    adds: Sequence[str]
    rows: list[tuple[Any, ...]]
    sets: Sequence[str] = ()


def statement(sums: Sums, rows: int, mark: str, *, mysql: bool = False) -> str:
    """An INSERT of `rows` rows that adds to existing rows."""
    name, columns = sums.table.name, sums.columns
    new = "VALUES({})" if mysql else "excluded.{}"
    adds = [f"{column} = {name}.{column} + {new.format(column)}" for column in sums.adds]
    sets = [f"{column} = {new.format(column)}" for column in sums.sets]
    one = f"({', '.join([mark] * len(columns))})"
    known = f"ON CONFLICT ({', '.join(columns[: sums.keys])}) DO UPDATE SET"
    return (
        f"INSERT INTO {name} ({', '.join(columns)}) VALUES {', '.join([one] * rows)}"  # noqa: S608
        f" {'ON DUPLICATE KEY UPDATE' if mysql else known} {', '.join(adds + sets)}"
    )


def commit_on_postgres(connection: sa.Connection, everything: Sequence[Sums]) -> None:
    """One simple query: the server has read the whole message before it runs any of it."""
    import psycopg

    if not everything:
        return
    driver: Any = connection.connection.driver_connection
    cursor = psycopg.ClientCursor(driver)
    written = [
        cursor.mogrify(statement(sums, len(sums.rows), "%s"), _flat(sums)) for sums in everything
    ]
    message = "; ".join([*written, "COMMIT"])
    with translated(connection, message), cursor:
        cursor.execute(message.encode(), prepare=False)


def commit_on_mariadb(connection: sa.Connection, everything: Sequence[Sums]) -> None:
    """One compound statement; the protocol's multi-statements stay off."""
    if not everything:
        return
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor:
        written = [
            cursor.mogrify(statement(sums, len(sums.rows), "%s", mysql=True), _flat(sums))
            for sums in everything
        ]
    message = f"BEGIN NOT ATOMIC {'; '.join(written)}; COMMIT; END"
    connection.exec_driver_sql(message.replace("%", "%%"))


def _flat(sums: Sums) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(sums.rows))
