"""Converts results of user code to outcomes and WARC frames. Runs on agents.

A result looks like an HTTP response, so that spiders, exports and users read it like any other
page; a header names the code. Large bodies are compressed in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Lock

from skep.archive.frames import Exchange
from skep.downloaders.code.child_messages import End
from skep.downloaders.curl_failures import short
from skep.downloaders.ports import Fetched
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings

#: Bytes from which a body is compressed in a thread; for smaller ones a thread would cost more.
LARGE = 128 * 1024
FIRST_ERROR_STATUS = 400
#: Characters of the error itself, of the 300 characters of a detail.
_FOR_THE_ERROR = 180
_REASONS = {200: "OK", 204: "No Content"}

Keep = Callable[[Exchange], bytes]
Deliver = Callable[[Fetched], None]


class Results:
    """Converts the answers of one run to outcomes."""

    def __init__(self, settings: RunSettings, label: str, keep: Keep, limit: int) -> None:
        self._settings = settings
        self._label = ("X-Skep-Downloader", label)
        self._keep = keep
        self._limit = limit
        self._lock = Lock()
        #: Results that threads compress now.
        self._tasks: set[asyncio.Task[None]] = set()

    def deliver(self, work: Work, end: End, deliver: Deliver) -> None:
        """`deliver` is called now, or later if the body is large."""
        failure, detail = self._judge(end)
        outcome = Outcome(
            work.id, failure, end.status, detail, end.elapsed_us, len(work.body), len(end.body)
        )
        if end.status == 0:
            deliver(Fetched(outcome))
            return
        exchange = Exchange(
            work.uri, work.method, list(work.headers.items()), work.body,
            end.status, _REASONS.get(end.status, ""), [*end.headers, self._label], end.body,
        )  # fmt: skip
        if len(end.body) < LARGE:
            deliver(_fetched(outcome, self._frames(exchange)))
            return
        task = asyncio.ensure_future(self._later(outcome, exchange, deliver))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for the threads."""
        await asyncio.gather(*self._tasks)

    async def _later(self, outcome: Outcome, exchange: Exchange, deliver: Deliver) -> None:
        deliver(_fetched(outcome, await asyncio.to_thread(self._frames, exchange)))

    def _frames(self, exchange: Exchange) -> bytes:
        with self._lock:  # a frame maker is for one thread at a time
            return self._keep(exchange)

    def _judge(self, end: End) -> tuple[str, str]:
        said = end.messages.strip()
        if end.failure:
            return end.failure, with_messages(end.detail, said)
        if len(end.body) > self._limit:
            return FailureClass.LIMIT, f"the result exceeds the limit of {self._limit} bytes"
        if end.status >= FIRST_ERROR_STATUS and end.status not in self._settings.accept_status:
            return FailureClass.STATUS, with_messages(
                f"the code returned status {end.status}", said
            )
        return "", short(said) if said else ""


def with_messages(detail: str, messages: str) -> str:
    """An error and the end of stderr, in one line that fits a table."""
    if not messages:
        return short(detail)
    head = " ".join(detail.split())[:_FOR_THE_ERROR]
    tail = " ".join(messages.split())
    return f"{head} | {tail[-(300 - len(head) - 3) :]}"


def _fetched(outcome: Outcome, frames: bytes) -> Fetched:
    outcome.length = len(frames)
    return Fetched(outcome, frames)
