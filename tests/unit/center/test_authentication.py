"""Tokens: who they let in, for how long, and what is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from skep.bus.memory import MemoryBus
from skep.center.agent_commands import RESTING, RESTING_SECONDS, Addressed, Hub
from skep.center.http.authentication import (
    ALLOWED,
    Auth,
    Identity,
    Role,
    check_agent_id,
    digest_of,
    ensure_token,
    read_token,
)
from skep.errors import ConfigurationError, Forbidden, InvalidInput, Unauthorized
from skep.model.fleet.token import FoundToken
from skep.store.ports import Store
from skep.testing.clock import ManualClock
from skep.wire.messages import Command


@pytest.fixture
def auth(store: Store, clock: ManualClock) -> Auth:
    return Auth(store, clock, enabled=True)


async def test_a_token_is_who_it_was_made_for(auth: Auth) -> None:
    """Fault 65: the role and the one agent that it may be."""
    token = await auth.issue(Role.AGENT, "a1")
    assert token.startswith("skep_agent_")
    who = await auth.identify(f"Bearer {token}", Role.AGENT)
    assert (who.role, who.subject, who.who) == (Role.AGENT, "a1", "agent:a1")
    who.may_be("a1")
    with pytest.raises(Forbidden, match="a2"):
        who.may_be("a2")
    Identity(Role.AGENT).may_be("anybody")


async def test_who_asks_the_store_asks_for_all_that_are_in_use(
    auth: Auth, store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand agents are one question: tokens in use are renewed together, a revoked one
    among them is out, and one that no caller uses is not asked for."""
    tokens = [await auth.issue(Role.AGENT, f"a{number}") for number in range(5)]
    for token in tokens:
        await auth.identify(f"Bearer {token}", Role.AGENT)
    asked: list[int] = []
    find_many = store.tokens.find_many

    async def counted(digests: Sequence[bytes]) -> dict[bytes, FoundToken]:
        asked.append(len(digests))
        return await find_many(digests)

    monkeypatch.setattr(store.tokens, "find_many", counted)
    clock.advance(2.0)
    for token in tokens[:4]:
        await auth.identify(f"Bearer {token}", Role.AGENT)
    await store.tokens.revoke("a1")
    clock.advance(1.5)
    await auth.identify(f"Bearer {tokens[0]}", Role.AGENT)
    assert asked == [4]
    for token in tokens[2:4]:
        await auth.identify(f"Bearer {token}", Role.AGENT)
    assert asked == [4]
    with pytest.raises(Unauthorized):
        await auth.identify(f"Bearer {tokens[1]}", Role.AGENT)


async def test_a_revoked_token_is_out_within_five_seconds(
    auth: Auth, store: Store, clock: ManualClock
) -> None:
    """Fault 65: also one that was used a moment before, and others stay in."""
    token, other = await auth.issue(Role.AGENT, "a1"), await auth.issue(Role.AGENT, "a2")
    for each in (token, other):
        await auth.identify(f"Bearer {each}", Role.AGENT)
    assert await store.tokens.revoke("a1") == 1
    clock.advance(4.9)
    with pytest.raises(Unauthorized, match="revoked"):
        await auth.identify(f"Bearer {token}", Role.AGENT)
    assert await auth.identify(f"Bearer {other}", Role.AGENT)


async def test_use_does_not_prolong_a_revoked_token(
    auth: Auth, store: Store, clock: ManualClock
) -> None:
    """Fault 65: a caller with ten calls a second is out in time too."""
    token = await auth.issue(Role.AGENT, "a1")
    await auth.identify(f"Bearer {token}", Role.AGENT)
    await store.tokens.revoke("a1")
    let_in = 0.0
    for _ in range(60):
        clock.advance(0.1)
        try:
            await auth.identify(f"Bearer {token}", Role.AGENT)
        except Unauthorized:
            continue
        let_in = clock.monotonic()
    assert let_in < 5.0


@pytest.mark.parametrize("text", ["", "Bearer", "Bearer ", "Basic x", "nonsense", "Bearer wrong"])
async def test_without_a_valid_token_no_caller_gets_in(auth: Auth, text: str) -> None:
    """Fault 48."""
    for needed in ALLOWED:
        with pytest.raises(Unauthorized):
            await auth.identify(text, needed)


@pytest.mark.parametrize("role", list(ALLOWED))
async def test_every_role_opens_its_doors_only(auth: Auth, role: Role) -> None:
    """Fault 50: deny by default."""
    token = await auth.issue(role, "")
    for needed, allowed in ALLOWED.items():
        if role in allowed:
            assert (await auth.identify(f"bearer {token}", needed)).role is role
        else:
            with pytest.raises(Forbidden):
                await auth.identify(f"Bearer {token}", needed)


async def test_public_routes_and_an_open_center_need_no_token(
    auth: Auth, store: Store, clock: ManualClock
) -> None:
    assert (await auth.identify("", Role.PUBLIC)).role is Role.PUBLIC
    open_ = Auth(store, clock, enabled=False)
    assert (await open_.identify("", Role.ADMIN)).role is Role.ADMIN
    assert (await open_.identify("", Role.AGENT)).role is Role.AGENT


def test_a_token_file_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    """Faults 48, 68: random, mode 600 from its first byte, kept for the next start."""
    path = tmp_path / "data" / "admin.token"
    token = ensure_token(path, Role.ADMIN)
    assert ensure_token(path, Role.ADMIN) == token
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["admin.token"]
    assert ensure_token(tmp_path / "other", Role.ADMIN) != token
    assert token.encode() not in digest_of(token)


def test_a_broken_token_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for name in ("empty", "absent"):
        with pytest.raises(ConfigurationError, match=name):
            read_token(tmp_path / name)


@pytest.mark.parametrize("agent", ["", "x" * 65, "a\nb", "a\tb", "\x7f", "\u00e9"])
def test_an_id_that_no_agent_can_have(agent: str) -> None:
    """Fault 70."""
    with pytest.raises(InvalidInput):
        check_agent_id(agent)
    check_agent_id("agent-01 of the cellar")


def hub(clock: ManualClock, name: str = "here") -> Hub:
    return Hub(MemoryBus({}), clock, name)


async def test_a_command_rests_for_a_minute_and_no_longer(clock: ManualClock) -> None:
    """C10, fault 7: an agent that comes a day later is not told to exit."""
    here = hub(clock)
    await here.send("a1", Command("exit"))
    clock.advance(RESTING_SECONDS - 1)
    await here.send("a1", Command("wake"))
    clock.advance(2)
    assert [command.name for command in here.resting("a1")] == ["wake"]
    assert here.resting("a1") == []


async def test_resting_commands_are_bounded(clock: ManualClock) -> None:
    """The newest stay, and agents that never come leave nothing behind."""
    here = hub(clock)
    for n in range(RESTING + 5):
        await here.send("a1", Command(f"c{n}"))
    assert [command.name for command in here.resting("a1")][0::99] == ["c5", "c104"]
    for n in range(50):
        await here.send(f"gone-{n}", Command("wake"))
    clock.advance(RESTING_SECONDS + 1)
    await here.send("a1", Command("wake"))
    assert len(here._resting) == 1


async def test_a_command_of_another_center_reaches_the_agent_that_is_here(
    clock: ManualClock,
) -> None:
    """C9: by socket when it has one, else with its beat; one's own echo is not repeated."""
    here, got = hub(clock), list[bytes]()

    async def take(data: bytes) -> None:
        got.append(data)

    async def broken(data: bytes) -> None:
        raise ConnectionResetError

    here.connect("a1", take)
    await here.hear(Addressed("a1", Command("wake"), "there"))
    assert len(got) == 1
    here.disconnect("a1", broken)
    assert here.connected == ["a1"], "only the socket itself may go"
    here.connect("a1", broken)
    await here.hear(Addressed("a1", Command("wake"), "there"))
    assert here.connected == []
    await here.hear(Addressed("a1", Command("exit"), "here"))
    assert [command.name for command in here.resting("a1")] == ["wake"]
