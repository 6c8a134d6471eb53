"""One page: the callback or errback that belongs to it is called, and its results taken.

Runs in the spider's process. An error in the spider's code costs that page and is counted;
a callback that never ends, or uses all memory, ends the run, and the next driver reads the
page's block again.
"""

from __future__ import annotations

from collections.abc import Callable
from traceback import clear_frames
from typing import Any

from skep.model.states import RequestState
from skep.spiders.authoring.callbacks import Caller, TooSlow
from skep.spiders.authoring.request import DEFAULT_CALLBACK, DEFAULT_ERRBACK, Request
from skep.spiders.authoring.spider import Spider
from skep.spiders.driving.harvest import Harvest, Harvester
from skep.spiders.driving.memory_limit import give_air
from skep.spiders.driving.page_decoding import Unpacker
from skep.spiders.driving.stats import CALLBACK_ERRORS, CALLBACK_TIME, MEMORY, Stats
from skep.spiders.ports import Page

#: Errors that are logged with their traceback; the others get one line each.
TRACEBACKS = 20

#: Where the numbers of an errback's items start: a dead request may be sent again by hand,
#: and the items of its page must not be taken for these.
ERRBACK_ITEMS = 1_000_000

#: What the engine does to a run that cannot go on.
FAIL = "fail"

DONE = RequestState.DONE.name.lower()
CANCELLED = RequestState.CANCELLED.name.lower()


class Stop(Exception):
    """The engine ends. `verb` is what it then asks of the run, "" is nothing."""

    def __init__(self, reason: str, sentence: str, verb: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence
        self.verb = verb


def memory_stop(error: MemoryError, what: str) -> Stop:
    """The end of a run whose memory is full, with some room for the last calls: the frames of
    the error, or the spider itself, may hold what fills it."""
    give_air()
    clear_frames(error.__traceback__)
    return Stop(MEMORY, f"{what} met the memory limit (memory_limit in the settings)", FAIL)


class Parser:
    """Calls the spider for one page after the other."""

    def __init__(self, spider: Spider, caller: Caller, harvester: Harvester, stats: Stats) -> None:
        self._spider = spider
        self._caller = caller
        self._harvester = harvester
        self._stats = stats
        self._unpack = Unpacker()

    async def parse(self, page: Page) -> Harvest | None:
        """The results of a page; None when there are none or its callback raised."""
        self._stats.bytes += len(page.frames)
        try:
            if page.state == DONE:
                return await self._done(page)
            if page.state != CANCELLED:
                return await self._failed(page)
        except TooSlow:
            raise self._too_slow(page) from None
        except MemoryError as error:
            raise memory_stop(error, f"the callback for {page.uri}") from None
        except Exception as error:  # noqa: BLE001 - a spider's code may raise anything
            self._count_error(page, error)
        return None

    async def _done(self, page: Page) -> Harvest | None:
        self._stats.pages += 1
        statuses = self._stats.statuses
        statuses[page.status] = statuses.get(page.status, 0) + 1
        response = self._unpack.response(page)
        request = response.request
        call = self._method(request.callback or DEFAULT_CALLBACK)
        results = await self._caller.results(call, response, **request.kwargs)
        if request.follow and self._spider.rules:
            results += await self._caller.results(self._spider.follow_rules, response)
        return self._harvest(results, page, request)

    async def _failed(self, page: Page) -> Harvest | None:
        self._stats.failed += 1
        failure = self._unpack.failure(page)
        kinds = self._stats.failures
        kinds[failure.kind] = kinds.get(failure.kind, 0) + 1
        call = self._method(failure.request.errback or DEFAULT_ERRBACK)
        results = await self._caller.results(call, failure)
        return self._harvest(results, page, failure.request, ERRBACK_ITEMS)

    def _method(self, name: str) -> Callable[..., Any]:
        # The name came back from outside: only what could have been sent is called.
        known = not name.startswith("_") and callable(getattr(self._spider, name, None))
        if not known:
            raise LookupError(f"{type(self._spider).__name__} has no method {name!r} any more")
        call: Callable[..., Any] = getattr(self._spider, name)
        return call

    def _harvest(
        self, results: list[Any], page: Page, request: Request, first: int = 0
    ) -> Harvest | None:
        if not results:
            return None
        return self._harvester.page(results, page.id, request.depth, first)

    def _count_error(self, page: Page, error: Exception) -> None:
        self._stats.callback_errors += 1
        count, limit = self._stats.callback_errors, self._spider.options.callback_error_limit
        trace = error if count <= TRACEBACKS else None
        self._spider.log.error(
            "the callback for %s raised %s: %s",
            page.uri,
            type(error).__name__,
            error,
            exc_info=trace,
        )
        if limit and count >= limit:
            raise Stop(
                CALLBACK_ERRORS,
                f"callbacks raised {count} times, last {type(error).__name__}: {error}; fix the "
                "spider and start it again with the same run",
                FAIL,
            )

    def _too_slow(self, page: Page) -> Stop:
        seconds = self._spider.options.callback_seconds
        return Stop(
            CALLBACK_TIME,
            f"the callback for {page.uri} took more than {seconds:g} s; the run goes on from this "
            "page when the spider is fixed and started again",
            FAIL,
        )
