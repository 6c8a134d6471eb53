"""Sessions without HTTP: expiry, bounds, and the last use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.access.identity import Role
from skep.access.login_attempts import LoginAttempts
from skep.access.sessions import LoginOrigin, Sessions
from skep.errors import TooManyTries, Unauthorized
from skep.settings import AccessSettings
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock

SETTINGS = AccessSettings(session_idle=100.0, session_seconds=1000.0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await opened.open()
    await opened.users.add("anna", "operator", [], "", 1.0)
    yield opened
    await opened.close()


async def test_a_session_ends_without_use(store: SqlStore) -> None:
    clock = ManualClock()
    sessions = Sessions(store, clock, SETTINGS, LoginAttempts(clock))
    secret, _ = await sessions.begin("anna", "password", LoginOrigin())
    for _ in range(3):
        clock.advance(60)
        assert (await sessions.find(secret, "")).role is Role.OPERATOR
        await sessions.write_uses()
    clock.advance(101)
    with pytest.raises(Unauthorized, match="log in again"):
        await sessions.find(secret, "")
    await sessions.delete_ended()
    assert await store.sessions.all() == []


async def test_a_session_that_is_used_ends_in_time(store: SqlStore) -> None:
    clock = ManualClock()
    sessions = Sessions(store, clock, SETTINGS, LoginAttempts(clock))
    secret, _ = await sessions.begin("anna", "password", LoginOrigin())
    for _ in range(19):
        clock.advance(50)
        await sessions.find(secret, "")
        await sessions.write_uses()
    clock.advance(50)
    with pytest.raises(Unauthorized):
        await sessions.find(secret, "")


async def test_guessed_sessions_are_slowed_down_and_valid_ones_are_not(store: SqlStore) -> None:
    clock = ManualClock()
    sessions = Sessions(store, clock, SETTINGS, LoginAttempts(clock, 3))
    secret, _ = await sessions.begin("anna", "password", LoginOrigin())
    for n in range(3):
        with pytest.raises(Unauthorized):
            await sessions.find(f"skep_session_{n}", "192.0.2.1")
    with pytest.raises(TooManyTries):
        await sessions.find("skep_session_x", "192.0.2.1")
    assert (await sessions.find(secret, "192.0.2.1")).who == "anna"


async def test_a_program_that_describes_itself_with_garbage(store: SqlStore) -> None:
    clock = ManualClock()
    sessions = Sessions(store, clock, SETTINGS, LoginAttempts(clock))
    await sessions.begin("anna", "password", LoginOrigin("::1", "\x00\x1b[2J" + "x" * 9000))
    (view,) = await store.sessions.all()
    assert view.client.startswith("??[2J")
    assert len(view.client) == 200
