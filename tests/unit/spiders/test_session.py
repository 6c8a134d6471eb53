"""A spider's session without a terminal and without a network: what it does and what it tells."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random
from typing import Any, ClassVar, TypeVar

import pytest

import skep
from skep.errors import CenterUnreachable, ConfigurationError, Conflict, NotFound, UnknownRun
from skep.model.ledger import Ledger
from skep.model.run import Run, RunSettings
from skep.model.run_figures import RunFigures
from skep.model.states import RunState
from skep.model.wait_reasons import Reason, Why
from skep.runtime.clock import Clock, SystemClock
from skep.spiders.driving.interrupts import pausing
from skep.spiders.driving.stats import FINISHED, PAGE_LIMIT, PAUSED, RESTART, Stats
from skep.spiders.session.item_source import LAST_TRIES, ItemSource
from skep.spiders.session.plan import SessionPlan, SessionResult
from skep.spiders.session.session import SpiderSession
from skep.spiders.session.summary import Summary
from skep.spiders.session.wait_notes import note_waits
from skep.testing.clock import ManualClock
from skep.testing.grounds.spiders import COUNT, Walker, demo
from skep.testing.polling import until
from skep.testing.spider_double import MemoryQueue
from skep.wire import codec
from skep.wire.api.caller import Download
from skep.wire.api.driver import Driving, Ended, LastWord, NewDriver, Read, Turn
from skep.wire.api.results import Item, Items
from skep.wire.api.runs import Runs, RunView
from skep.wire.client.api import CenterApi
from skep.wire.client.transport import Answer, Request

T = TypeVar("T")
LIMIT = 2**28


class MemoryCenter:
    """A transport to runs in memory: the routes that a session calls, and no others."""

    def __init__(self) -> None:
        self.queues: dict[str, MemoryQueue] = {}
        #: Calls that fail before one is answered; -1 = all of them.
        self.away = 0
        self.calls: list[str] = []

    def keep(self, run: str, job: str, state: RunState, at: float = 0.0) -> MemoryQueue:
        """A run of an earlier session."""
        queue = self.queues[run] = MemoryQueue(demo)
        queue.state = state
        queue.run = Run(run, job, state, RunSettings(), at)
        return queue

    async def send(self, request: Request, read: Callable[[Answer], T]) -> T:
        path = request.path.partition("?")[0]
        self.calls.append(path)
        if self.away:
            self.away -= 1
            raise CenterUnreachable("no center answers at memory")
        kind = request.headers["Accept"]
        answer = await self._answer(path.split("/")[1:], request)
        return read(Answer(path, 200, kind, codec.encode(answer, kind)))

    def stream(self, request: Request) -> AbstractAsyncContextManager[Download]:
        raise AssertionError(f"a session streams nothing: {request.path}")

    async def _answer(self, path: list[str], request: Request) -> Any:
        match path:
            case ["requestqueue", run, verb]:
                queue = self.queues.setdefault(run, MemoryQueue(demo))
                return await self._driven(queue, run, verb, request)
            case ["api", "v1", "runs"]:
                runs = [_run(name, queue) for name, queue in self.queues.items()]
                return Runs(sorted(runs, key=lambda run: -run.created_at))
            case ["api", "v1", "runs", name, "items"]:
                found = list(self._known(name).items.values())
                after = int(request.path.partition("after=")[2].partition("&")[0] or 0)
                items = [Item(n, 1, data) for n, data in enumerate(found, 1) if n > after]
                return Items(items, len(found))
            case ["api", "v1", "runs", name]:
                queue = self._known(name)
                return RunView(_run(name, queue), await queue.ledger(), 0, RunFigures())
            case ["api", "v1", "runs", name, verb]:
                await self._known(name).move(verb)
                return RunView(_run(name, self._known(name)), Ledger(), 0, RunFigures())
            case _:
                raise NotFound(f"no route {request.path}")

    async def _driven(self, queue: MemoryQueue, run: str, verb: str, request: Request) -> Any:
        if verb == "driver":
            asked = _body(request, NewDriver)
            opened = await queue.open(asked.job, asked.settings, asked.patience)
            return Driving(opened, queue.driver)
        if verb == "read":
            ask = _body(request, Read)
            return await queue.read(ask.limit, ask.wait, ask.taken)
        if verb == "turn":
            return await queue.checkpoint(_body(request, Turn))
        word = _body(request, LastWord)
        verbs = {"paused": "pause", "failed": "fail", "finished": "finish"}
        await queue.end(verbs[word.state], word.reason)
        return Ended(_run(run, queue))

    def _known(self, run: str) -> MemoryQueue:
        if run not in self.queues:
            raise UnknownRun(f"there is no run {run}")
        return self.queues[run]


def _body(request: Request, kind: type[T]) -> T:
    data = codec.decompress(request.body or b"", request.headers.get("Content-Encoding", ""), LIMIT)
    return codec.decode(data, kind, request.headers["Content-Type"])


def _run(name: str, queue: MemoryQueue) -> Run:
    known = queue.run or Run(name, "", queue.state, RunSettings(), 0.0)
    return Run(name, known.job, queue.state, known.settings, known.created_at)


class Recorded:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.updates = 0

    def appends(self, file: Path) -> None:
        self.told.append(("appends", file))

    def chosen(self, run: str, *, finished: bool) -> None:
        self.told.append(("chosen", run, finished))

    def update(self, stats: Stats) -> None:
        assert stats.pages >= 0
        self.updates += 1

    def waits(self, reason: str) -> None:
        self.told.append(("waits", reason))

    def interrupted(self, run: str, *, again: bool) -> None:
        self.told.append(("interrupted", run, again))

    def leaves_sinks(self) -> None:
        self.told.append(("leaves sinks",))

    def ended(self) -> None:
        self.told.append(("ended",))


@pytest.fixture
def center() -> MemoryCenter:
    return MemoryCenter()


@pytest.fixture
def progress() -> Recorded:
    return Recorded()


async def run(
    center: MemoryCenter,
    progress: Recorded,
    plan: SessionPlan,
    bring_back: Any = None,
) -> SessionResult:
    clock, api = SystemClock(), CenterApi(center)
    async with asyncio.timeout(30):
        return await SpiderSession(plan, api, bring_back, progress, clock, Random(1)).run()


def items_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_a_new_run_from_its_choice_to_its_last_item(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    file = tmp_path / "items.jsonl"
    plan = SessionPlan(Walker(), tmp_path, (str(file),), run="first")
    result = await run(center, progress, plan)
    assert (result.run, result.ending.reason) == ("first", FINISHED)
    assert progress.told == [("chosen", "first", False), ("ended",)]
    assert result.ledger == Ledger(accepted=COUNT, done=COUNT)
    assert [(one.items, one.problem) for one in result.outputs] == [(COUNT, "")]
    assert len({item["url"] for item in items_of(file)}) == COUNT
    summary = Summary.of(result)
    assert (summary.spider, summary.pages, summary.statuses) == (Walker().name, COUNT, {200: COUNT})
    assert center.queues["first"].state is RunState.FINISHED


async def test_a_name_is_made_of_the_spider(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    class Named(Walker):
        name = "böse: /spider/"
        settings: ClassVar[dict[str, Any]] = {"page_limit": 1}

    result = await run(center, progress, SessionPlan(Named(), tmp_path))
    assert result.run.startswith("b-se-spider-")
    assert result.ending.reason == PAGE_LIMIT


async def test_a_name_that_a_run_has_deletes_no_file(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    """The choice comes before anything is changed."""
    file = tmp_path / "items.jsonl"
    file.write_text("kept\n")
    center.keep("taken", "walker", RunState.PAUSED)
    plan = SessionPlan(Walker(), tmp_path, (str(file),), (str(file),), run="taken")
    with pytest.raises(Conflict, match="taken is there already and paused"):
        await run(center, progress, plan)
    assert file.read_text() == "kept\n"
    assert progress.told == []


async def test_a_file_with_content_is_told_about_and_a_new_one_is_begun_when_asked(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text('{"url":"old"}\n')
    plan = SessionPlan(Walker(), tmp_path, (str(file),), run="one")
    await run(center, progress, plan)
    assert progress.told[0] == ("appends", file)
    assert len(items_of(file)) == COUNT + 1
    again = SessionPlan(Walker(), tmp_path, (str(file),), (str(file),), run="two")
    await run(center, progress, again)
    assert ("appends", file) not in progress.told[1:]
    assert len(items_of(file)) == COUNT


async def test_the_newest_unfinished_run_of_the_spider_goes_on(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    name = Walker().name
    center.keep("older", name, RunState.PAUSED, at=1.0)
    center.keep("newer", name, RunState.FAILED, at=2.0)
    center.keep("newest", name, RunState.FINISHED, at=3.0)
    center.keep("others", "another", RunState.PAUSED, at=4.0)
    result = await run(center, progress, SessionPlan(Walker(), tmp_path, resume=""))
    assert (result.run, result.ending.reason) == ("newer", FINISHED)
    assert center.queues["newer"].moves == ["continue", "finish"]
    assert center.queues["older"].moves == []


async def test_a_finished_run_is_not_driven_and_its_sinks_get_what_they_lack(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    queue = center.keep("done", Walker().name, RunState.FINISHED)
    queue.items = {(1, 0): {"url": "a"}, (2, 0): {"url": "b"}}
    file = tmp_path / "items.jsonl"
    result = await run(
        center, progress, SessionPlan(Walker(), tmp_path, (str(file),), resume="done")
    )
    assert progress.told == [("chosen", "done", True), ("ended",)]
    assert (result.ending.reason, result.ending.stats.pages) == (FINISHED, 0)
    assert [item["url"] for item in items_of(file)] == ["a", "b"]
    assert queue.driver == 0, "no driver was opened"


@pytest.mark.parametrize(("resume", "error"), [("", NotFound), ("ghost", UnknownRun)])
async def test_there_is_no_run_to_go_on_with(
    center: MemoryCenter, progress: Recorded, tmp_path: Path, resume: str, error: type[Exception]
) -> None:
    center.keep("others", "another", RunState.PAUSED)
    with pytest.raises(error):
        await run(center, progress, SessionPlan(Walker(), tmp_path, resume=resume))


async def test_the_center_is_brought_back_while_the_session_lasts(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    """It is away from the first call on, and only the callable ends that."""
    center.away = -1
    seen: list[str] = []

    async def bring_back() -> None:
        seen.append("begun")
        await until(lambda: center.calls, step=0.01)
        center.away = 0
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    plan = SessionPlan(Walker(), tmp_path, run="again")
    result = await run(center, progress, plan, bring_back)
    assert result.ending.reason == FINISHED
    assert seen == ["begun", "cancelled"]
    assert result.ledger is not None


async def test_a_center_that_is_gone_at_the_end_gives_no_ledger(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    class Last(Walker):
        def closed(self, reason: str) -> None:
            center.away = -len(reason)

    result = await run(center, progress, SessionPlan(Last(), tmp_path, run="last"))
    assert (result.ending.reason, result.ledger) == (FINISHED, None)


async def test_a_restart_is_a_result_and_not_an_end(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    class Asked(Walker):
        def opened(self) -> None:
            center.queues["r"].asked = "restart"

    result = await run(center, progress, SessionPlan(Asked(), tmp_path, run="r"))
    assert (result.ending.reason, result.ledger) == (RESTART, None)
    assert center.queues["r"].state is RunState.RUNNING


async def test_a_signal_pauses_the_run_and_is_told(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    class Interrupting(Walker):
        def parse(self, response: skep.Response) -> Iterator[Any]:
            if response.url.endswith("/0"):
                os.kill(os.getpid(), signal.SIGINT)
            yield from super().parse(response)

    before = signal.getsignal(signal.SIGINT)
    result = await run(center, progress, SessionPlan(Interrupting(), tmp_path, run="p"))
    assert result.ending.reason == PAUSED
    assert ("interrupted", "p", False) in progress.told
    assert center.queues["p"].state is RunState.PAUSED
    assert signal.getsignal(signal.SIGINT) is before


async def test_figures_are_told_while_the_run_goes_on(
    center: MemoryCenter, progress: Recorded, tmp_path: Path
) -> None:
    class Slow(Walker):
        async def parse(self, response: skep.Response) -> Any:  # type: ignore[override]  # both are allowed
            await until(lambda: progress.updates > 1, step=0.01)
            return {"url": response.url}

    result = await run(center, progress, SessionPlan(Slow(), tmp_path, run="slow"))
    assert (result.ending.reason, result.ending.stats.callback_errors) == (FINISHED, 0)
    assert progress.updates > 1


async def test_the_second_signal_is_not_a_pause() -> None:
    class Heard:
        def __init__(self) -> None:
            self.told: list[int] = []

        def first(self) -> None:
            self.told.append(0)

        def second(self, number: int) -> None:
            self.told.append(number)

    heard, pauses = Heard(), asyncio.Semaphore(0)
    with pausing(pauses.release, heard):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
            await asyncio.sleep(0)
        await asyncio.wait_for(pauses.acquire(), 5)
    assert heard.told == [0, signal.SIGINT, signal.SIGTERM]
    assert pauses.locked(), "it paused once"


class Explained(MemoryCenter):
    """Answers why a run waits."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.texts = list(texts)

    async def _answer(self, path: list[str], request: Request) -> Any:
        assert (request.method, path) == ("GET", ["api", "v1", "why", "runs", "r"])
        text = self.texts.pop(0)
        return Why("run", "r", "running", bool(text), [Reason("x", text)])


async def test_what_a_run_waits_for_is_told_once_for_each_reason() -> None:
    """Only while nothing moves, and numbers do not make a reason another one."""
    texts = ("rests\n for 3 s", "rests for 2 s", "", "no agent lives", "never asked")
    center, told, stats, clock = Explained(*texts), list[str](), Stats(), ManualClock()
    task = asyncio.create_task(note_waits(CenterApi(center), "r", stats, told.append, clock))
    for _ in range(20):
        stats.pages += 1
        await clock.pass_time(1.0)
    assert center.calls == []
    await clock.pass_time(13.0)
    task.cancel()
    assert told == ["rests for 3 s", "no agent lives"]
    assert center.texts == ["never asked"]


async def read(center: MemoryCenter, clock: Clock, *, ended: bool) -> list[int]:
    event = asyncio.Event()
    event.set() if ended else None
    source = ItemSource(CenterApi(center), "r", event, clock, Random(1))
    return [record.position for record in await source.read(1, 10)]


async def test_items_of_a_run_that_is_not_opened_yet_are_none(center: MemoryCenter) -> None:
    assert await read(center, ManualClock(), ended=False) == []


@pytest.mark.parametrize("ended", [False, True])
async def test_a_center_that_is_away_ends_the_items_only_after_the_run(
    center: MemoryCenter, ended: bool
) -> None:
    """While the run goes on there is no last try."""
    center.keep("r", "walker", RunState.RUNNING).items = {(1, 0): {}, (2, 0): {}}
    center.away, clock = LAST_TRIES, ManualClock()
    task = asyncio.create_task(read(center, clock, ended=ended))
    await clock.pass_time(60.0)
    if ended:
        with pytest.raises(ConfigurationError, match="no center answers"):
            await task
        assert len(center.calls) == LAST_TRIES
    else:
        assert await task == [2]
