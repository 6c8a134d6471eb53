"""Wrong tokens: who has to wait, and who goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from skep.access.login_attempts import ADDRESSES, LoginAttempts, network_of
from skep.center.http.authentication import Auth, Identity, Role
from skep.errors import TooManyTries, Unauthorized
from skep.model.fleet.token import FoundToken, Grant
from skep.store.ports import Store
from skep.testing.clock import ManualClock

HERE, THERE = "198.51.100.7", "198.51.100.8"


@pytest.fixture
def auth(store: Store, clock: ManualClock) -> Auth:
    return Auth(store, clock, enabled=True, wrong_tokens=5)


async def guess(auth: Auth, number: int, origin: str = HERE) -> str:
    """What became of a wrong token."""
    try:
        await auth.identify(f"Bearer skep_admin_{number}", Role.ADMIN, "", origin)
    except (TooManyTries, Unauthorized) as error:
        return error.code
    return "in"


async def test_of_many_guesses_few_are_looked_up(
    auth: Auth, store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 71, S10: 5 are told that they are wrong; 3,000 more share a few questions."""
    questions, find_many = [], store.tokens.find_many

    async def counted(digests: Sequence[bytes]) -> dict[bytes, FoundToken]:
        questions.append(len(digests))
        return await find_many(digests)

    monkeypatch.setattr(store.tokens, "find_many", counted)
    codes = [await guess(auth, number) for number in range(5)]
    assert codes == ["unauthorized"] * 5
    codes = await asyncio.gather(*(guess(auth, number) for number in range(3_000)))
    assert codes == ["too_many_tries"] * 3_000
    assert len(questions) <= 5 + 4
    assert await guess(auth, 1, THERE) == "unauthorized", "others need not wait"
    clock.advance(61)
    assert await guess(auth, 1) == "unauthorized", "the minute is over"


async def test_a_good_token_is_never_refused(auth: Auth, clock: ManualClock) -> None:
    """Fault 71, S10: agents behind the same address as a guesser work, new ones too."""
    token = await auth.issue(Role.AGENT, "a1")
    await auth.identify(f"Bearer {token}", Role.AGENT, "", HERE)
    for number in range(5):
        await guess(auth, number)
    for _ in range(10):
        clock.advance(4)
        await auth.identify(f"Bearer {token}", Role.AGENT, "", HERE)
    assert await guess(auth, 1) == "too_many_tries"
    fresh = await auth.issue(Role.AGENT, "a2")
    calls = (auth.identify(f"Bearer {fresh}", Role.AGENT, "", HERE) for _ in range(50))
    guesses = (guess(auth, number) for number in range(200))
    who, codes = await asyncio.gather(asyncio.gather(*calls), asyncio.gather(*guesses))
    assert {one.subject for one in who} == {"a2"}
    assert set(codes) == {"too_many_tries"}


def test_addresses_are_bounded(clock: ManualClock) -> None:
    tries = LoginAttempts(clock, 1)
    for number in range(ADDRESSES + 10):
        tries.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(tries._failures) == ADDRESSES


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff"),
        ("2001:db8::1%eth0", "2001:db8::2"),
        ("::ffff:198.51.100.7", HERE),
        ("testclient", "testclient"),
        ("::1", "::1"),
    ],
)
def test_a_network_is_one(origin: str, same: str) -> None:
    """Fault 71: a caller with one IPv6 address has a great many."""
    assert network_of(origin) == network_of(same)
    assert network_of(origin) != network_of("2001:db8:1::1")


async def test_a_token_ends_with_its_time(auth: Auth, clock: ManualClock) -> None:
    """Also one that was used a moment before."""
    token = await auth.issue(Role.VIEWER, "", "zoë", 10.0, Grant("home"))
    clock.advance(9.5)
    who = await auth.identify(f"Bearer {token}", Role.VIEWER)
    assert (who.role, who.grant) == (Role.VIEWER, Grant("home"))
    clock.advance(0.5)
    with pytest.raises(Unauthorized, match="expired"):
        await auth.identify(f"Bearer {token}", Role.VIEWER)


def test_one_credential_is_good_for_the_processes_of_its_agent() -> None:
    """Fault 65: `attic` may be `attic.2`, and nothing that only looks like it."""
    attic = Identity(Role.AGENT, "attic")
    for mine in ("attic", "attic.1", "attic.256"):
        attic.may_be(mine)
    for other in ("attic.", "attic.x", "attic.1.2", "attic2", "a", "attic.1234", "attic.1\n"):
        with pytest.raises(Exception, match="not for"):
            attic.may_be(other)
    with pytest.raises(Exception, match="not for"):
        Identity(Role.AGENT, "attic.1").may_be("attic")
