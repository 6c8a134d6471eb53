"""`skep.testing.polling`: waiting in tests."""

from __future__ import annotations

import asyncio

import pytest

from skep.testing.polling import NotInTime, until, until_sync


async def test_it_returns_what_was_found() -> None:
    found: list[int] = []
    asyncio.get_running_loop().call_soon(found.append, 7)
    assert await until(lambda: found, step=0) == [7]


async def test_coroutines_and_a_condition_of_its_own() -> None:
    numbers = iter(range(100))

    async def count() -> int:
        return next(numbers)

    assert await until(count, lambda number: number == 3, step=0) == 3


async def test_the_failure_says_what_how_long_and_the_last_value() -> None:
    with pytest.raises(NotInTime, match=r"two agents: not within 0.05 s; the last value was \[1\]"):
        await until(lambda: [1], lambda found: len(found) == 2, seconds=0.05, what="two agents")
    with pytest.raises(NotInTime, match=r"len\(found\) == 2"):
        await until(lambda: [1], lambda found: len(found) == 2, seconds=0.05)


async def test_a_look_that_hangs_ends_in_time() -> None:
    with pytest.raises(NotInTime, match="an unfinished call"):
        await until(asyncio.Event().wait, seconds=0.05, what="never")


async def test_errors_of_the_look_are_raised() -> None:
    async def broken() -> bool:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await until(broken)


def test_without_an_event_loop() -> None:
    numbers = iter(range(100))
    assert until_sync(lambda: next(numbers), lambda number: number > 4, step=0) == 5
    with pytest.raises(NotInTime, match="the last value was False"):
        until_sync(lambda: False, seconds=0.0)
