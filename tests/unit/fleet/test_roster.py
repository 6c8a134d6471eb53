"""Who lives: judged by one clock, with room for jitter, never by an agent's own time."""

from __future__ import annotations

from random import Random

import pytest

from skep.errors import Fenced, UnknownAgent
from skep.fleet.roster import Roster
from skep.model.fleet.agent import Registration, Vitals
from skep.settings import CenterSettings
from skep.store.ports import Store
from skep.testing.clock import ManualClock

SETTINGS = CenterSettings()


@pytest.fixture
async def roster(store: Store, clock: ManualClock) -> Roster:
    """It knows a1 and has listened long enough to judge."""
    made = Roster(SETTINGS, store, clock)
    await made.register(Registration("a1", "a1"))
    clock.advance(SETTINGS.alive_after)
    await made.heartbeat("a1", Vitals(), 0.0)
    return made


async def test_alive_at_10_9_and_dead_at_11_1_seconds(roster: Roster, clock: ManualClock) -> None:
    """C3, fault 21: the edge is at 11 s after the last beat, as received."""
    clock.advance(10.9)
    assert await roster.dead() == []
    clock.advance(0.2)
    assert await roster.dead() == ["a1"]
    await roster.heartbeat("a1", Vitals(), 0.0)
    assert await roster.dead() == []


async def test_who_was_called_dead_gets_no_work_before_its_next_beat(
    roster: Roster, clock: ManualClock
) -> None:
    """Fault 17: leases given to an agent after it was found dead: 0."""
    clock.advance(12)
    assert not roster.given_up("a1")
    assert await roster.dead() == ["a1"]
    assert roster.given_up("a1")
    await roster.heartbeat("a1", Vitals(), SETTINGS.alive_after)
    assert roster.given_up("a1"), "a beat that waited too long says nothing"
    await roster.heartbeat("a1", Vitals(), 0.0)
    assert not roster.given_up("a1")


async def test_jitter_of_3_seconds_kills_no_agent(roster: Roster, clock: ManualClock) -> None:
    """Fault 21: an hour of beats every 3 s, each up to 3 s late, looked at each second."""
    rng, false_dead = Random(21), 0
    due = clock.monotonic()
    next_beat = due + 3.0 + rng.uniform(0, 3.0)
    for _ in range(3600):
        clock.advance(1.0)
        while clock.monotonic() >= next_beat:
            await roster.heartbeat("a1", Vitals(), 0.0)
            due += 3.0
            next_beat = due + 3.0 + rng.uniform(0, 3.0)
        false_dead += len(await roster.dead())
    assert false_dead == 0


async def test_no_agent_is_dead_before_the_center_has_listened(
    store: Store, clock: ManualClock
) -> None:
    """Fault 23: after a restart the silence was ours; the first verdict takes 11 s."""
    before = Roster(SETTINGS, store, clock)
    await before.register(Registration("a1", "a1"))
    clock.advance(3600)
    after = Roster(SETTINGS, store, clock)
    assert await after.dead() == []
    clock.advance(10.9)
    assert (after.may_judge, await after.dead()) == (False, [])
    clock.advance(0.2)
    assert (after.may_judge, await after.dead()) == (True, ["a1"])


async def test_an_outage_of_the_store_is_not_the_agents_silence(
    roster: Roster, clock: ManualClock
) -> None:
    """Fault 26: heartbeats could not be written; all agents get a full 11 s again."""
    clock.advance(60)
    roster.deaf()
    assert await roster.dead() == []
    clock.advance(10.9)
    assert await roster.dead() == []
    clock.advance(0.2)
    assert await roster.dead() == ["a1"]


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_kills_no_agent(
    roster: Roster, clock: ManualClock, hours: int
) -> None:
    """Fault 31: the center's wall clock jumps; the living beat again before any verdict."""
    clock.set_wall(clock.now() + hours * 3600)
    assert not roster.may_judge
    assert await roster.dead() == []
    for _ in range(4):
        clock.advance(3.0)
        await roster.heartbeat("a1", Vitals(), 0.0)
        assert await roster.dead() == []
    assert roster.may_judge


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_hides_no_death(
    roster: Roster, clock: ManualClock, hours: int
) -> None:
    """Fault 31: who is silent after the jump is dead, also with a last beat in the future."""
    clock.set_wall(clock.now() + hours * 3600)
    assert await roster.dead() == []
    clock.advance(11.1)
    assert await roster.dead() == ["a1"]


@pytest.mark.parametrize("age", [11.0, 3600.0, float("inf"), float("nan")])
async def test_a_beat_that_waited_says_nothing(
    roster: Roster, clock: ManualClock, age: float
) -> None:
    """C10, fault 9: a heartbeat of 11 s or more does not count; the agent is known all the same."""
    clock.advance(10.0)
    assert await roster.heartbeat("a1", Vitals(), age) is True
    assert await roster.heartbeat("ghost", Vitals(), age) is False
    clock.advance(1.1)
    assert await roster.dead() == ["a1"]


async def test_a_registration_is_life_however_late(roster: Roster, clock: ManualClock) -> None:
    """C10, fault 10: processed whenever it comes; twice is one agent."""
    clock.advance(600)
    assert await roster.dead() == ["a1"]
    await roster.register(Registration("a1", "a1", group="home"))
    assert await roster.dead() == []
    (view,) = await roster.refresh()
    assert view.registration.group == "home"


async def test_a_person_decides_who_works(roster: Roster, store: Store, clock: ManualClock) -> None:
    """C3: a disabled agent gets no work, at every center; a beat changes nothing."""
    other = Roster(SETTINGS, store, clock)
    assert await roster.may_work("a1")
    assert not await roster.may_work("ghost")
    await roster.enable("a1", enabled=False)
    assert not await roster.may_work("a1")
    assert not await other.may_work("a1")
    assert await roster.heartbeat("a1", Vitals(), 0.0)
    await roster.register(Registration("a1", "a1"))
    assert not await roster.may_work("a1")
    await roster.enable("a1", enabled=True)
    assert await roster.may_work("a1")
    with pytest.raises(UnknownAgent):
        await roster.enable("ghost", enabled=True)


async def test_whom_another_center_hears_is_alive_here(
    roster: Roster, store: Store, clock: ManualClock
) -> None:
    """C9: a look reads who changed and who is silent; the others have beaten somewhere."""
    other = Roster(SETTINGS, store, clock)
    await roster.refresh()
    for _ in range(40):
        clock.advance(1.0)
        await other.heartbeat("a1", Vitals(), 0.0)
        assert await roster.dead() == []
        assert roster.alive("a1")
    clock.advance(10.9)
    assert roster.alive("a1"), "as of the last look, which was not long ago"
    clock.advance(0.2)
    assert await roster.dead() == ["a1"]
    assert (roster.alive("a1"), roster.silent) == (False, frozenset({"a1"}))


async def test_a_look_brings_what_another_center_has_changed(
    roster: Roster, store: Store, clock: ManualClock
) -> None:
    """C9: an agent that came, one that was put aside, and a newer process."""
    await roster.refresh()
    other = Roster(SETTINGS, store, clock)
    await other.register(Registration("a2", "a2", kinds=("http", "odd")))
    await other.enable("a1", False, "cordoned")
    clock.advance(1.0)
    await roster.look_around()
    assert [(view.id, view.enabled) for view in roster.views] == [("a1", False), ("a2", True)]
    assert roster.alive("a2")
    await other.register(Registration("a1", "a1"))
    clock.advance(1.0)
    await roster.look_around()
    with pytest.raises(Fenced):
        roster.check_session("a1", 1)


async def test_without_a_recent_look_beats_tell_who_lives(
    roster: Roster, store: Store, clock: ManualClock
) -> None:
    await roster.look_around()
    await store.agents.heartbeat([("a1", Vitals())], clock.now())
    clock.advance(SETTINGS.alive_after)
    assert (roster.silent, roster.alive("a1")) == (None, False)
    assert not roster.alive("nobody")


async def test_a_beat_tells_at_once_how_its_agent_is(roster: Roster, clock: ManualClock) -> None:
    clock.advance(2.0)
    await roster.heartbeat("a1", Vitals(free_memory=77), 0.0)
    view = roster.view("a1")
    assert view is not None
    assert (view.vitals.free_memory, view.seen_at) == (77, clock.now())
