"""Calls that are done together: whose they are, in which order, and what a failure does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from skep.runtime.batcher import Batcher
from skep.testing.polling import until


class Recorder:
    """Answers with ten times the number; each call waits until it is let go."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gate = asyncio.Event()
        self.trouble: BaseException | None = None

    async def act(self, items: list[int]) -> Sequence[int]:
        self.calls.append(list(items))
        await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        return [10 * item for item in items]


async def test_what_is_asked_for_during_a_call_is_in_the_next_one() -> None:
    """A caller that comes alone does not wait; the others share one call, in order."""
    recorder = Recorder()
    together = Batcher(recorder.act)
    first = asyncio.create_task(together.ask("a", 1))
    await until(lambda: recorder.calls, step=0)
    others = [asyncio.create_task(together.ask(key, n)) for key, n in (("b", 2), ("c", 3))]
    await asyncio.sleep(0)
    recorder.gate.set()
    assert [await first, *await asyncio.gather(*others)] == [10, 20, 30]
    assert recorder.calls == [[1], [2, 3]]


async def test_two_with_one_key_are_never_in_one_call_and_no_call_is_too_large() -> None:
    recorder = Recorder()
    recorder.gate.set()
    together = Batcher(recorder.act, limit=2)
    asked = [("a", 1), ("a", 2), ("b", 3), ("c", 4)]
    found = await asyncio.gather(*(together.ask(key, item) for key, item in asked))
    assert found == [10, 20, 30, 40]
    assert recorder.calls == [[1, 3], [2, 4]]


async def test_a_failure_reaches_all_callers_of_one_call_and_no_later_one() -> None:
    recorder = Recorder()
    recorder.gate.set()
    recorder.trouble = ValueError("away")
    together = Batcher(recorder.act)
    found = await asyncio.gather(*(together.ask(n, n) for n in range(3)), return_exceptions=True)
    assert [str(error) for error in found] == ["away"] * 3
    recorder.trouble = None
    assert await together.ask("again", 7) == 70


async def test_a_caller_that_has_gone_leaves_no_trace() -> None:
    recorder = Recorder()
    together = Batcher(recorder.act)
    first = asyncio.create_task(together.ask("a", 1))
    await asyncio.sleep(0)
    gone = asyncio.create_task(together.ask("b", 2))
    stays = asyncio.create_task(together.ask("c", 3))
    await until(lambda: recorder.calls, step=0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    recorder.gate.set()
    assert [await first, await stays] == [10, 30]
    assert all(2 not in call for call in recorder.calls[1:])


async def test_calls_keep_their_distance() -> None:
    """The second call begins no sooner than `pause` after the first; a lone one at once."""
    recorder = Recorder()
    recorder.gate.set()
    together = Batcher(recorder.act, pause=0.05)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await together.ask("a", 1)
    await together.ask("a", 2)
    assert loop.time() - began >= 0.05
    assert recorder.calls == [[1], [2]]
