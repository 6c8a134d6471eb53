"""The ground floor: back-off, ids, clocks."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock, SystemClock
from skep.runtime.ids import new_id, new_secret
from skep.testing.clock import ManualClock

seeds = st.integers(min_value=0, max_value=2**32)
backoffs = st.builds(
    Backoff,
    first=st.floats(min_value=0.001, max_value=100),
    cap=st.floats(min_value=0.001, max_value=10_000),
    factor=st.floats(min_value=1, max_value=10),
    floor=st.floats(min_value=0, max_value=1),
)


@given(backoffs, st.integers(min_value=-5, max_value=10**9), seeds)
def test_a_delay_is_never_over_the_cap_nor_under_its_floor(
    backoff: Backoff, attempt: int, seed: int
) -> None:
    """D5: for any number of attempts, also huge ones, it is a usable number."""
    delay = backoff.delay(attempt, Random(seed))
    assert 0 <= delay <= backoff.cap
    assert delay >= backoff.floor * min(backoff.first, backoff.cap) * (1 - 1e-9)


@given(backoffs, st.integers(min_value=1, max_value=100), seeds)
def test_with_the_same_luck_a_later_attempt_never_waits_less(
    backoff: Backoff, attempt: int, seed: int
) -> None:
    sooner = backoff.delay(attempt, Random(seed))
    assert backoff.delay(attempt + 1, Random(seed)) >= sooner


def test_without_jitter_it_doubles_up_to_the_cap() -> None:
    backoff = Backoff(first=2, cap=20, floor=1)
    rng = Random(1)
    assert [backoff.delay(attempt, rng) for attempt in range(1, 7)] == [2, 4, 8, 16, 20, 20]


def test_a_fleet_that_failed_together_does_not_come_back_together() -> None:
    """A7: full jitter over the upper half."""
    rng = Random(7)
    delays = [Backoff(first=10).delay(1, rng) for _ in range(1000)]
    assert min(delays) < 5.1
    assert max(delays) > 9.9
    assert len({round(delay, 3) for delay in delays}) > 800


moments = st.floats(min_value=0, max_value=4_000_000_000)


@given(moments, moments, seeds)
def test_ids_sort_by_the_moment_they_were_made(one: float, other: float, seed: int) -> None:
    rng = Random(seed)
    first, second = sorted((one, other))
    if int(first * 1000) == int(second * 1000):
        second += 1
    assert new_id("run", first, rng) < new_id("run", second, rng)


def test_ids_made_in_one_moment_differ() -> None:
    rng = Random(1)
    made = {new_id("a", 1_700_000_000.0, rng) for _ in range(10_000)}
    assert len(made) == 10_000


@given(moments, seeds)
def test_an_id_is_plain_text_that_fits_urls_and_file_names(moment: float, seed: int) -> None:
    made = new_id("run", moment, Random(seed))
    assert made.startswith("run-")
    assert len(made) == len("run-") + 16
    assert made.replace("-", "").isalnum()
    assert made == made.lower()


def test_secrets_are_long_and_never_the_same() -> None:
    made = {new_secret("skep") for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(secret) > 38 and secret.startswith("skep_") for secret in made)
    assert not any("=" in secret for secret in made)


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=["system", "manual"])
async def test_both_clocks_keep_the_contract(clock: Clock) -> None:
    before, started = clock.now(), clock.monotonic()
    await clock.sleep(0)
    assert clock.now() >= before
    assert clock.monotonic() >= started


async def test_a_manual_clock_moves_by_hand_only(clock: ManualClock) -> None:
    before = clock.now(), clock.monotonic()
    await asyncio.sleep(0.01)
    assert (clock.now(), clock.monotonic()) == before
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (before[0] + 2.5, before[1] + 2.5)


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before(clock: ManualClock) -> None:
    sleeper = asyncio.create_task(clock.sleep(10))
    await clock.pass_time(9.9)
    assert not sleeper.done()
    assert clock.sleepers == 1
    await clock.pass_time(0.1)
    assert sleeper.done()
    assert clock.sleepers == 0


async def test_sleepers_wake_in_the_order_of_their_due_times(clock: ManualClock) -> None:
    woken: list[tuple[float, float]] = []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        for seconds in (3.0, 1.0, 2.0):
            tasks.create_task(sleep(seconds))
        await clock.pass_time(5)
    assert woken == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]


async def test_a_loop_runs_once_for_each_of_its_sleeps(clock: ManualClock) -> None:
    rounds = 0

    async def loop() -> None:
        nonlocal rounds
        while True:
            await clock.sleep(0.3)
            rounds += 1

    task = asyncio.create_task(loop())
    await clock.pass_time(3.1)
    task.cancel()
    assert rounds == 10


async def test_a_cancelled_sleeper_is_forgotten(clock: ManualClock) -> None:
    sleeper = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    assert clock.sleepers == 0
    clock.advance(2)


def test_time_does_not_go_back(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="cannot move time back"):
        clock.advance(-1)


def test_the_wall_clock_can_jump_without_the_other(clock: ManualClock) -> None:
    """The machine's clock is set: ages and deadlines do not change."""
    clock.set_wall(5.0)
    assert (clock.now(), clock.monotonic()) == (5.0, 0.0)
