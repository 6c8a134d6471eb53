"""One spider driven to its end from a terminal: engine, outputs, signals, words.

Runs in the process of `skep run`. It keeps nothing that matters: all of it is in the
center and in the sinks, in that order.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from skep.cli.commands.crawl.item_sinks import SinkWriters, clear_files, filled_files
from skep.cli.commands.crawl.run_summary import Summary, tell
from skep.cli.commands.crawl.spider_progress import SpiderProgress
from skep.cli.commands.crawl.spider_start import Restart, SpiderRunPlan
from skep.cli.commands.results.wait_reasons import note_waits, say_failures
from skep.cli.terminal.center_options import run_path
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.follow_run import ledger_of
from skep.cli.terminal.output import say
from skep.cli.terminal.wait_outcome import exit_of
from skep.errors import Conflict, NotFound, SkepError, UnknownRun
from skep.model.ledger import Ledger
from skep.runtime.backoff import Backoff
from skep.runtime.clock import SystemClock
from skep.runtime.ids import new_id
from skep.runtime.retry import Attempts, retry
from skep.spiders.driving import stats as ends
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.http_queue import HttpQueue
from skep.spiders.driving.stats import Ending, Stats
from skep.spiders.driving.watchdog import watchdog
from skep.wire.client import CenterClient

DRAW_EVERY = 0.2
RUNS_LOOKED_AT = 1000
UNFINISHED = {"running", "paused", "failed"}
AGAIN = Backoff(first=0.2, cap=10.0)
#: A run's name has 64 characters, and 17 of them are for the moment and for chance.
NAME_PART = 46

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class SpiderSession:
    """One life of a spider's process."""

    def __init__(
        self,
        plan: SpiderRunPlan,
        client: CenterClient,
        clock: SystemClock,
        rng: Random,
        progress: SpiderProgress,
    ) -> None:
        self._plan = plan
        self._client = client
        self._clock = clock
        self._rng = rng
        self._progress = progress
        self._interrupted = False

    async def run(self) -> int:
        name, is_finished = await self._choose_run()
        output_sinks = SinkWriters(self._client, name, self._plan.folder, self._clock, self._rng)
        clear_files(self._plan.overwritten)
        if self._plan.resume is None:
            for file in filled_files(self._plan.outputs):
                self._progress.note(f"{file} exists: items are appended; -O {file} overwrites it")
        await output_sinks.open(self._plan.outputs)
        if is_finished:
            ending = Ending(ends.FINISHED, "the run was finished before", Stats())
            self._progress.note(f"run {name} was finished before; outputs get what they lack")
        else:
            self._progress.note(f"run {name} · center {self._client.address}")
            ending = await self._crawl(name)
        await output_sinks.finish()
        self._progress.end()
        summary = Summary.of(name, self._plan.spider.name, ending, output_sinks.output_sinks)
        if ending.reason == ends.RESTART:
            raise Restart(name)
        ledger = await self._ledger(name)
        tell(summary, ledger, as_json=self._plan.as_json)
        await say_failures(self._client, name, ledger.dead if ledger else 0)
        return self._exit_code(name, ending, output_sinks, ledger)

    async def _crawl(self, name: str) -> Ending:
        options = self._plan.spider.options
        queue = HttpQueue(self._client, name, self._clock, self._rng, options.center_tries)
        engine = SpiderEngine(self._plan.spider, queue, self._clock)
        note = self._progress.note
        beside = (
            asyncio.create_task(self._draw(engine.stats)),
            asyncio.create_task(note_waits(self._client, name, engine.stats, note, self._clock)),
        )
        try:
            async with watchdog(engine.longest_silence, self._clock):
                with self._pausing(engine, name):
                    return await engine.run()
        finally:
            for task in beside:
                task.cancel()

    async def _draw(self, stats: Stats) -> None:
        while True:
            await self._clock.sleep(DRAW_EVERY)
            self._progress.update(stats)

    async def _choose_run(self) -> tuple[str, bool]:
        """(the run's name, whether it is finished already)."""
        if self._plan.resume is not None:
            run = await self._found(self._plan.resume)
            return run["id"], run["state"] == "finished"
        if self._plan.run is None:
            part = _NOT_IN_A_NAME.sub("-", self._plan.spider.name).strip("-._")[:NAME_PART]
            return new_id(part or "run", self._clock.now(), self._rng), False
        if (known := await self._known(self._plan.run)) is not None:
            raise Conflict(
                f"run {known['id']} is there already and {known['state']}; go on with it by "
                f"--resume {known['id']}, or choose another name"
            )
        return self._plan.run, False

    async def _found(self, name: str) -> dict[str, Any]:
        if name:
            known = await self._known(name)
            if known is None:
                raise UnknownRun(f"there is no run {name!r}; `skep runs` lists them")
            return known
        listed = await self._asked(f"/api/v1/runs?limit={RUNS_LOOKED_AT}")
        mine = [run for run in listed["items"] if run["job"] == self._plan.spider.name]
        unfinished = [run for run in mine if run["state"] in UNFINISHED]
        finished = [run for run in mine if run["state"] == "finished"]
        if not unfinished and not finished:
            spider = self._plan.spider.name
            raise NotFound(f"spider {spider} has no run to go on with; leave --resume out")
        newest: dict[str, Any] = (unfinished or finished)[0]
        return newest

    async def _known(self, name: str) -> dict[str, Any] | None:
        try:
            view = await self._asked(run_path(name))
        except UnknownRun:
            return None
        run: dict[str, Any] = view["run"]
        return run

    async def _asked(self, path: str) -> dict[str, Any]:
        """A question with the patience that the spider's settings give (fault 1)."""
        attempts = Attempts(AGAIN, self._rng, self._plan.spider.options.center_tries)
        answer: dict[str, Any] = await retry(
            lambda: self._client.call("GET", path, None, dict),
            SkepError,
            lambda error, failures: attempts.pause(failures) if error.retryable else None,
            self._clock.sleep,
        )
        return answer

    async def _ledger(self, name: str) -> Ledger | None:
        try:
            return await ledger_of(self._client, name)
        except SkepError:
            return None

    @contextmanager
    def _pausing(self, engine: SpiderEngine, name: str) -> Iterator[None]:
        """The first signal pauses; the second ends the process, and the kernel its child.

        A plain handler and not the loop's: it must work while the spider's code hangs.
        """
        loop = asyncio.get_running_loop()

        def signalled(*_: object) -> None:
            if self._interrupted:
                os.write(2, f"\nended at once; go on with: {self._command(name)}\n".encode())
                os._exit(ExitCode.INTERRUPTED)
            self._interrupted = True
            os.write(2, b"\npausing; once more ends it at once\n")
            loop.call_soon_threadsafe(engine.pause)

        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, signalled) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _command(self, name: str) -> str:
        return f"{self._plan.again} --resume {name}"

    def _exit_code(
        self, name: str, ending: Ending, output_sinks: SinkWriters, ledger: Ledger | None
    ) -> int:
        stuck = [output_sink for output_sink in output_sinks.output_sinks if output_sink.problem]
        for output_sink in stuck:
            say(f"not all items are in {output_sink.place}: {output_sink.problem}")
        if ending.reason == ends.PAUSED:
            say(f"paused; go on with: {self._command(name)}")
            return ExitCode.INTERRUPTED
        if not ending.good:
            say(f"error: {ending.sentence} ({ending.reason})")
            if ending.reason != ends.CANCELLED:
                say(f"go on with: {self._command(name)}")
            return ExitCode.UNREACHABLE if ending.reason == ends.UNREACHABLE else ExitCode.FAILED
        if 0 < ending.stats.pages <= ending.stats.callback_errors:
            say("error: the callback of every page raised; the log above says where")
            return ExitCode.FAILED
        code = exit_of(ledger or _seen(ending.stats), self._plan.allow_dead, finished=True)
        if code is not ExitCode.OK:
            say(f"some requests failed: `skep failures ls --run {name}` shows why")
        return ExitCode.FAILED if stuck else code


def _seen(stats: Stats) -> Ledger:
    """What this process saw, for a center that went away before the last question."""
    return Ledger(accepted=stats.pages + stats.failed, done=stats.pages, dead=stats.failed)
