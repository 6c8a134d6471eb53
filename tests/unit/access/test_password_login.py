"""Passwords and logins without HTTP: hashes, bounds, and what an unknown user costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.access.login import PER_ACCOUNT, WRONG_HERE, PasswordLogin
from skep.access.passwords import Passwords, ScryptCost
from skep.access.sessions import LoginOrigin
from skep.errors import InvalidInput, StoreDown, TooManyTries, Unauthorized
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.wire.api.people.login import LoginForm

CHEAP = ScryptCost(log_n=4, r=1, p=1)
HERE = LoginOrigin("192.0.2.1", "test")


class Counted(Passwords):
    """Counts the hashes that it computes."""

    hashes = 0

    async def _computed(self, password: str, cost: ScryptCost, salt: bytes) -> bytes:
        self.hashes += 1
        return await super()._computed(password, cost, salt)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}", patience=1.0)
    await opened.open()
    yield opened
    await opened.close()


async def test_a_hash_holds_its_parameters_and_no_password() -> None:
    passwords = Passwords(CHEAP)
    first, second = await passwords.hash("correct horse"), await passwords.hash("correct horse")
    assert first.startswith("scrypt$4,1,1$")
    assert first != second, "each has its own salt"
    assert "correct" not in first
    assert await Passwords().fits("correct horse", first), (
        "read with the parameters it was made with"
    )
    assert not await passwords.fits("correct Horse", first)
    assert not await passwords.fits("", "")
    assert not await passwords.fits("\udcff" * 8, first)
    assert len(await Passwords().hash("x" * 1024)) <= 400


@pytest.mark.parametrize("password", ["", "short", "x" * 1025])
async def test_a_new_password_has_a_length(password: str) -> None:
    with pytest.raises(InvalidInput, match="characters"):
        await Passwords(CHEAP).hash(password)


async def test_more_hashes_than_the_bound_are_refused_at_once() -> None:
    passwords = Passwords(CHEAP, waiting=5)
    calls = [passwords.fits("x" * 9, "") for _ in range(50)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(one, TooManyTries) for one in found) == 45
    assert await passwords.fits("x" * 9, "") is False, "there is room again"


async def test_every_wrong_login_costs_one_hash(store: SqlStore) -> None:
    """Response times reveal no names: unknown, disabled, without a password, or wrong."""
    passwords = Counted(CHEAP)
    login = PasswordLogin(store, passwords, ManualClock())
    await store.users.add("anna", "viewer", [], await passwords.hash("correct horse"), 1.0)
    await store.users.add("bare", "viewer", [], "", 1.0)
    for name in ("anna", "bare", "ghost"):
        passwords.hashes = 0
        with pytest.raises(Unauthorized):
            await login.user_of(LoginForm(user=name, password=""), HERE)
        assert passwords.hashes == 1
    assert await login.user_of(LoginForm(user="anna", password="correct horse"), HERE) == "anna"


async def test_wrong_passwords_are_bounded_by_address_and_account(store: SqlStore) -> None:
    passwords, clock = Counted(CHEAP), ManualClock()
    login = PasswordLogin(store, passwords, clock)
    wrong = LoginForm(user="anna", password="wrong")
    for _ in range(WRONG_HERE):
        with pytest.raises(Unauthorized):
            await login.user_of(wrong, HERE)
    with pytest.raises(TooManyTries):
        await login.user_of(wrong, HERE)
    assert passwords.hashes == WRONG_HERE, "a refused login costs none"
    with pytest.raises(Unauthorized):
        await login.user_of(wrong, LoginOrigin("192.0.2.2"))
    with pytest.raises(Unauthorized):
        await login.user_of(LoginForm(user="bob", password="wrong"), HERE)
    clock.advance(61)
    with pytest.raises(Unauthorized):
        await login.user_of(wrong, HERE)


async def test_one_account_cannot_take_all_turns(store: SqlStore) -> None:
    login = PasswordLogin(store, Passwords(CHEAP), ManualClock())
    form = LoginForm(user="anna", password="wrong")
    calls = [login.user_of(form, LoginOrigin(f"192.0.2.{n}")) for n in range(20)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(one, TooManyTries) for one in found) == 20 - PER_ACCOUNT
    with pytest.raises(Unauthorized):
        await login.user_of(form, LoginOrigin("198.51.100.1"))


async def test_a_frozen_store_fails_the_login_and_holds_few_callers(store: SqlStore) -> None:
    """A database that does not answer: 503 after its time limit, and no hash meanwhile."""
    passwords = Counted(CHEAP)
    login = PasswordLogin(store, passwords, ManualClock())
    free = asyncio.get_running_loop().create_future()
    reads = [asyncio.create_task(store.database.read(lambda _: _wait(free))) for _ in range(2)]
    form = LoginForm(user="anna", password="wrong")
    calls = [login.user_of(form, LoginOrigin(f"192.0.2.{n}")) for n in range(10)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    free.set_result(None)
    await asyncio.gather(*reads, return_exceptions=True)
    assert sum(isinstance(one, StoreDown) for one in found) == PER_ACCOUNT
    assert sum(isinstance(one, TooManyTries) for one in found) == 10 - PER_ACCOUNT
    assert passwords.hashes == 0


def _wait(free: asyncio.Future[None]) -> None:
    """Blocks a reading thread of the store until the test is done."""
    import time

    while not free.done():
        time.sleep(0.01)
