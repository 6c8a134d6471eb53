"""Work in a thread: its result, its error, and no thread that outlives a cancelled caller."""

from __future__ import annotations

import asyncio
import threading

import pytest

from skep.runtime.in_thread import in_thread


async def test_the_result_and_the_error_are_those_of_the_work() -> None:
    assert await in_thread(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


async def test_a_cancelled_caller_waits_until_the_work_has_ended() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(30)
        ended.set()

    task = asyncio.create_task(in_thread(work))
    assert await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    for _ in range(10):  # rounds of the event loop, more than the cancellation needs
        await asyncio.sleep(0)
    assert not task.done(), "the work has not ended, so the caller has not either"
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
