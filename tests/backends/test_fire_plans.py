"""What centers ask about schedules every second is answered from indexes, however long the
ledger has become."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.model.jobs.fire import Fire, FireState
from skep.store.sql.schema.schedules import schedules
from skep.store.sql.store import SqlStore
from skep.testing import servers

OLD = 20_000
NOW = 1_800_000_000
STALE = Fire("j1", "stale", NOW, FireState.CLAIMED)


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    """A long ledger, many schedules, and little to do."""
    url = f"sqlite:///{tmp_path / 'skep.db'}"
    if request.param == "postgresql":
        server: servers.Postgres = request.getfixturevalue("postgres_server")
        url = server.fresh_database()
    opened = SqlStore(url)
    await opened.open()
    fires = [Fire(f"j{n % 50}", f"{n}", NOW - n, FireState.FIRED) for n in range(OLD)]
    await opened.fires.add([*fires, STALE])
    columns = ("job", "document", "decided", "next_at", "version")
    rows = [(f"j{n}", '{"every":60}', NOW, float(NOW + n), 1) for n in range(OLD)]
    await opened.database.write(
        lambda tx: tx.dialect.insert_new(tx.connection, schedules, columns, rows)
    )
    await opened.database.write(lambda tx: tx.sql("ANALYZE") and None)
    yield opened
    await opened.close()


CALLS: dict[str, tuple[str, Callable[[SqlStore], Awaitable[Any]]]] = {
    "due": ("schedules_next", lambda s: s.fires.due(NOW + 1, 500)),
    "unattended": ("fires_open", lambda s: s.fires.unattended(NOW, 15.0, 1000)),
    "pending": ("fires_open", lambda s: s.fires.pending([f"j{n}" for n in range(100)])),
    "change": ("fires", lambda s: s.fires.change([(STALE, STALE)])),
    "of_job": ("fires_of_job", lambda s: s.fires.of_job("j1", 5)),
    "forget": ("fires_by_time", lambda s: s.fires.forget(NOW - OLD + 5, 100)),
}


async def plan_of(store: SqlStore, ask: Callable[[SqlStore], Awaitable[Any]]) -> list[str]:
    """How the engine answers the first SELECT of a call."""
    asked: list[tuple[str, Any]] = []

    def listen(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lstrip().startswith("SELECT"):
            asked.append((statement, parameters))

    sa.event.listen(store.database.engine, "before_cursor_execute", listen)
    assert await ask(store), "there is something to find"
    sa.event.remove(store.database.engine, "before_cursor_execute", listen)
    explain = "EXPLAIN QUERY PLAN " if store.database.dialect.name == "sqlite" else "EXPLAIN "
    statement, parameters = asked[0]
    return await store.database.read(
        lambda c: [str(tuple(row)) for row in c.exec_driver_sql(explain + statement, parameters)]
    )


async def test_every_regular_question_uses_its_index(store: SqlStore) -> None:
    for call, (index, ask) in CALLS.items():
        plan = await plan_of(store, ask)
        assert any(index in line for line in plan), (call, plan)
        assert not any("SCAN fires" in line or "Seq Scan" in line for line in plan), (call, plan)
