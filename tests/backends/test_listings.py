"""E11: listings that are read page by page show every row once, on every database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.store.sql.store import SqlStore

NOW = 1_700_000_000.0


@pytest_asyncio.fixture
async def store(store_url: str) -> AsyncIterator[SqlStore]:
    opened = SqlStore(store_url)
    await opened.open()
    yield opened
    await opened.close()


async def test_runs_of_several_centers_are_listed_once(store: SqlStore) -> None:
    """E11: rows in another order than their times, and several of one moment."""
    for number, at in enumerate([3, 1, 2, 2, 2, 5, 4]):
        run = Run(f"r{number}", "job", RunState.RUNNING, RunSettings(), NOW + at)
        assert await store.runs.create(run)
    for limit in range(1, 8):
        seen: list[Run] = []
        before = None
        while page := await store.runs.recent(limit, before):
            seen += page
            before = page[-1].created_at
        assert sorted(run.id for run in seen) == [f"r{number}" for number in range(7)]
        times = [run.created_at for run in seen]
        assert times == sorted(times, reverse=True)


async def test_the_list_of_tokens_has_no_end_at_a_thousand(store: SqlStore) -> None:
    """E11: page after page, those of one moment too."""
    for number in range(25):
        digest = bytes([number]) * 32
        await store.tokens.add(digest, "viewer", f"s{number}", NOW + number // 10)
    seen: list[str] = []
    after = ""
    while (page := await store.tokens.all(4, after)) and len(seen) <= 25:
        seen += [token.subject for token in page]
        after = page[-1].id
    assert sorted(seen) == sorted(f"s{number}" for number in range(25))
