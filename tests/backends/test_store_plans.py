"""The store's regular questions are answered from their indexes, not by reading tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.store.ports.requests import PackPlan
from skep.store.sql.hosts.wake_hosts import parked_of
from skep.store.sql.store import SqlStore
from skep.testing import servers
from skep.testing.conformance.store.ground import NOW, new_run, rows
from skep.testing.conformance.store.leasing import lease, pack
from skep.testing.conformance.store.reports import failed, ids, settle, settlement

#: Old rows that no query needs; an index must make them free.
OLD = 30_000

SERIES = {
    "sqlite": f"(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {OLD})"
    " SELECT n FROM s) AS s",
    "postgresql": f"generate_series(1, {OLD}) AS s (n)",
}
DIGEST = {
    "sqlite": "CAST(printf('%016d', n) AS BLOB)",
    "postgresql": "lpad(n::text, 16, '0')::bytea",
}


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    """A store with a long past and a little to do."""
    url = f"sqlite:///{tmp_path / 'skep.db'}"
    if request.param == "postgresql":
        server: servers.Postgres = request.getfixturevalue("postgres_server")
        url = server.fresh_database()
    opened = SqlStore(url)
    await opened.open()
    await new_run(opened)
    await new_run(opened, "past")
    await opened.requests.accept("run", rows(50, expires_at=NOW + 9), NOW)
    await opened.database.write(lambda tx: [tx.sql(q) for q in _past(request.param)])
    yield opened
    await opened.close()


def _past(engine: str) -> list[str]:
    digest, series = DIGEST[engine], SERIES[engine]
    requests = "run, fingerprint, uri, host, priority, arguments, state, failures, block"
    blocks = 'run, priority, state, token, losses, agent, target, lease_until, size, "open"'
    of_request = f"2, {digest}, 'http://h/', 'h', 5, {digest}, 4, 0, n"
    of_block = "1, 5, 4, 1, 0, 'a', '', 1, 1, 0"
    return [
        (
            f"INSERT INTO requests ({requests}, not_before, expires_at, created_at)"
            f" SELECT {of_request}, 1, 1, 1 FROM {series}"
        ),
        (  # Hosts that wait for their turn.
            f"INSERT INTO requests ({requests}, not_before, expires_at, created_at)"
            f" SELECT 3, {digest}, 'http://p/', 'p' || n, 5, {digest}, 3, 0, NULL, 9e9, NULL, 1"
            f" FROM {series}"
        ),
        (
            f"INSERT INTO blocks ({blocks}, failed, collected, created_at)"
            f" SELECT {of_block}, 0, 1, 1 FROM {series}"
        ),
        "ANALYZE",
    ]


async def plans(store: SqlStore, ask: Callable[[], Awaitable[Any]]) -> str:
    """How the engine answers the SELECTs of one call."""
    asked: list[tuple[str, Any]] = []

    def listen(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lstrip().startswith(("SELECT", "WITH")) and "FROM runs \n" not in statement:
            asked.append((statement, parameters))

    sa.event.listen(store.database.engine, "before_cursor_execute", listen)
    await ask()
    sa.event.remove(store.database.engine, "before_cursor_execute", listen)
    explain = "EXPLAIN QUERY PLAN " if store.database.dialect.name == "sqlite" else "EXPLAIN "

    def work(connection: sa.Connection) -> str:
        lines = [
            str(tuple(line))
            for statement, parameters in asked
            for line in connection.exec_driver_sql(explain + statement, parameters)
        ]
        return "\n".join(lines)

    assert asked
    return await store.database.read(work)


CALLS: dict[str, tuple[str, Callable[[SqlStore], Awaitable[Any]]]] = {
    "pack": ("requests_waiting", lambda s: s.requests.pack([PackPlan("run", 5, 10, 5)], NOW)),
    "backlog": ("requests_waiting", lambda s: s.requests.backlog()),
    "wake": ("requests_delayed", lambda s: s.requests.wake(NOW, 100)),
    "parked": ("requests_parked", lambda s: s.database.write(lambda tx: parked_of(tx, "h", 9))),
    "expire": ("requests_mortal", lambda s: s.requests.expire(NOW, 100)),
    "reap": ("blocks_using", lambda s: s.blocks.reap(NOW, ["a"], 5, 100)),
    "claimable": ("blocks_claimable", lambda s: s.blocks.claimable(100)),
    "finished": ("blocks_finished", lambda s: s.blocks.finished("run", 10)),
}


async def test_every_regular_question_uses_its_index(store: SqlStore) -> None:
    for call, (index, ask) in CALLS.items():
        plan = await plans(store, lambda ask=ask: ask(store))  # type: ignore[misc]
        assert index in plan, f"{call}:\n{plan}"
        for table in ("requests", "blocks"):
            assert f"SCAN {table}'" not in plan, f"{call}:\n{plan}"
            assert f"Seq Scan on {table}" not in plan, f"{call}:\n{plan}"


async def test_why_is_answered_by_indexes(store: SqlStore) -> None:
    """R5: a person who asks why something waits gets an answer however long the past is."""
    await pack(store, limit=20, size=5)
    used = await lease(store, [ref.id for ref in await store.blocks.claimable(3)])
    first, *_ = used
    again = dict.fromkeys(ids(first), NOW + 9)
    await settle(store, settlement(first, failed(ids(first)), again))
    parked = ids(used[1])[0]
    move = f"UPDATE requests SET state = 3, not_before = 9, block = NULL WHERE id = {parked}"
    await store.database.write(lambda tx: tx.sql(move))
    waiting = min(ids(first)) + 40
    questions: dict[str, Callable[[], Awaitable[Any]]] = {
        "waiting request": lambda: store.waits.request(waiting),
        "leased request": lambda: store.waits.request(ids(used[2])[0]),
        "parked request": lambda: store.waits.request(parked),
        "block": lambda: store.waits.block(used[2].id),
        "run": lambda: store.waits.run("run"),
        "run of the past": lambda: store.waits.run("past"),
    }
    for question, ask in questions.items():
        plan = await plans(store, ask)
        for table in ("requests", "blocks", "attempts", "block_history"):
            assert f"SCAN {table}'" not in plan, f"{question}:\n{plan}"
            # The first few of an index in its own order are no reading of a table.
            read = plan.replace("SCAN requests USING INDEX requests_delayed", "")
            assert f"SCAN {table} " not in read, f"{question}:\n{plan}"
        for table in ("requests", "blocks"):
            assert f"Seq Scan on {table}" not in plan, f"{question}:\n{plan}"
        assert "blocks_of_run" not in plan, f"{question}:\n{plan}"
