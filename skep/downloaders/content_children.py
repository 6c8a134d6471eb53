"""Passes finished pages to child processes that apply the content rules. Runs on agents.

Users write the rules, and pages are not trusted: a regular expression can run without end while it
holds the interpreter's lock, which would stop the agent's heartbeat. So no page is parsed in the
agent's process. A page that a child cannot finish fails as `limit`, the child is replaced, and
other pages wait for it or use the second child.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from random import Random
from typing import cast

import msgspec
from msgspec.structs import replace

from skep.archive.frames import Exchange
from skep.downloaders.content_child import Answer, ContentPage, ContentSetup
from skep.downloaders.curl_failures import short
from skep.downloaders.libcurl.transfer import Done
from skep.downloaders.ports import Fetched
from skep.model.content_rules import ContentRules
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome
from skep.runtime.clock import Clock

log = logging.getLogger(__name__)

CHILDREN = 2
#: Waiting pages before the second child is started.
AHEAD = 4
#: Seconds for a child that hangs or is stopped; a child limits its own processor time.
PATIENCE = 30.0
_LAST_WORDS = 2.0
_LENGTH_BYTES = 8
_NO_CONTENT = frozenset({204, 304})
_PASSED_ON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "VIRTUAL_ENV")

Finish = Callable[[Done, Fetched], None]
Page = tuple[Done, Outcome, Exchange]


class ChildDied(Exception):
    """The child ended or hung before it answered; `failure` is the failure class."""

    def __init__(self, failure: FailureClass, detail: str, *, is_by_the_page: bool = False) -> None:
        super().__init__(detail)
        self.failure = failure
        #: A retry would end the same way.
        self.is_by_the_page = is_by_the_page


class ContentChild:
    """One process, which gets one page at a time."""

    def __init__(self, orders: ContentSetup, patience: float) -> None:
        self._orders = orders
        self._patience = patience
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, page: ContentPage) -> Answer:
        """Raises ChildDied; the next call starts a new process."""
        try:
            return await self._ask_once(page)
        except ChildDied as death:
            if death.is_by_the_page:
                raise
        # It may have ended for another reason, such as a machine without free memory.
        return await self._ask_once(page)

    async def _ask_once(self, page: ContentPage) -> Answer:
        try:
            async with asyncio.timeout(self._patience):
                return await self._ask(page)
        except TimeoutError as error:
            await self.end()
            detail = "the content rules do not end"
            raise ChildDied(FailureClass.LIMIT, detail, is_by_the_page=True) from error
        except (OSError, asyncio.IncompleteReadError) as error:
            raise self._death(await self.end()) from error

    def _death(self, code: int) -> ChildDied:
        if code == -signal.SIGPROF:
            seconds = self._orders.rules.seconds
            detail = f"the content rules took more than {seconds:g} s"
            return ChildDied(FailureClass.LIMIT, detail, is_by_the_page=True)
        if code < 0:
            return ChildDied(FailureClass.LIMIT, f"the content rules were killed by signal {-code}")
        return ChildDied(
            FailureClass.CODE, f"the content rules cannot be applied, exit code {code}"
        )

    async def _ask(self, page: ContentPage) -> Answer:
        process = self._process or await self._start()
        into = cast("asyncio.StreamWriter", process.stdin)
        out = cast("asyncio.StreamReader", process.stdout)
        _send(into, page)
        await into.drain()
        size = int.from_bytes(await out.readexactly(_LENGTH_BYTES), "big")
        return msgspec.msgpack.decode(await out.readexactly(size), type=Answer)

    async def _start(self) -> asyncio.subprocess.Process:
        """Start it with only those variables that Python needs."""
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "skep.downloaders.content_child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        _send(cast("asyncio.StreamWriter", process.stdin), self._orders)
        return process

    async def end(self) -> int:
        """Ensure that it has ended; return its exit code, negative for a signal."""
        process, self._process = self._process, None
        if process is None:
            return 0
        # Wait first: a child that has closed its output is about to end by itself.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                _LAST_WORDS if cast("asyncio.StreamReader", process.stdout).at_eof() else 0
            ):
                await process.wait()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
        return process.returncode or 0


def _send(stream: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    data = msgspec.msgpack.encode(message)
    stream.writelines((len(data).to_bytes(_LENGTH_BYTES, "big"), data))


class ContentChildren:
    """Belongs to one downloader; lives on the event loop and never blocks it."""

    def __init__(self, rules: ContentRules, clock: Clock, rng: Random, finish: Finish) -> None:
        """`finish` is called once for each page that was taken, on the event loop."""
        self._rules = rules
        self._clock = clock
        self._rng = rng
        self._finish = finish
        self._pages: asyncio.Queue[Page] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    def take(self, done: Done, outcome: Outcome, exchange: Exchange) -> None:
        self._pages.put_nowait((done, outcome, exchange))
        if len(self._tasks) < CHILDREN and self._pages.qsize() > AHEAD * len(self._tasks):
            orders = ContentSetup(self._rules, self._rng.getrandbits(60))
            child = ContentChild(orders, self._rules.seconds + PATIENCE)
            self._tasks.append(asyncio.ensure_future(self._work(child)))

    async def close(self) -> None:
        """Return unfinished pages as `lost`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while not self._pages.empty():
            done, outcome, _ = self._pages.get_nowait()
            self._finish(done, _lost(outcome))
        # The ended tasks would keep a reference to this object until the next collection.
        self._tasks.clear()
        self._finish = _discard

    async def _work(self, child: ContentChild) -> None:
        try:
            while True:
                done, outcome, exchange = await self._pages.get()
                fetched = _lost(outcome)
                try:
                    fetched = await self._cut(child, outcome, exchange)
                except Exception as error:
                    log.exception("cannot apply content rules")
                    fetched = _failed(outcome, FailureClass.CODE, repr(error))
                finally:
                    self._finish(done, fetched)
        finally:
            await child.end()

    async def _cut(self, child: ContentChild, outcome: Outcome, exchange: Exchange) -> Fetched:
        page = self._page(outcome, exchange)
        try:
            return _fetched(outcome, await child.ask(page))
        except ChildDied as death:
            outcome = _failed(outcome, death.failure, str(death)).outcome
        try:
            # Unchanged, so that users can find the cause.
            return _fetched(outcome, await child.ask(replace(page, is_plain=True)))
        except ChildDied:
            return Fetched(outcome)

    def _page(self, outcome: Outcome, exchange: Exchange) -> ContentPage:
        is_plain = bool(outcome.failure) or _has_no_content(exchange)
        return ContentPage(
            exchange.uri, exchange.method, list(exchange.request_headers),
            bytes(exchange.request_body), exchange.status, exchange.reason,
            list(exchange.response_headers), bytes(exchange.body), exchange.address, exchange.cut,
            self._clock.now(), is_plain,
        )  # fmt: skip


def _has_no_content(exchange: Exchange) -> bool:
    """Responses that are always empty: no rule could match, and none should fail."""
    return exchange.method == "HEAD" or exchange.status in _NO_CONTENT


def _fetched(outcome: Outcome, answer: Answer) -> Fetched:
    if answer.failure:
        outcome = _failed(outcome, answer.failure, answer.detail).outcome
    return Fetched(replace(outcome, length=len(answer.frames)), answer.frames)


def _failed(outcome: Outcome, failure: str, detail: str) -> Fetched:
    return Fetched(replace(outcome, failure=outcome.failure or failure, detail=short(detail)))


def _discard(done: Done, fetched: Fetched) -> None:
    """Replaces `finish` after the end."""


def _lost(outcome: Outcome) -> Fetched:
    return Fetched(Outcome(outcome.id, FailureClass.LOST, detail="the downloader was closed"))
