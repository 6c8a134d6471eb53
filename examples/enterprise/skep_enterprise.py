"""A downloader plug-in for `enterprise://`: companies from a public registry.

A registry has three pages for one company: a search, the company, its filings. With this
plug-in a job requests `enterprise://registry.example/NUMBER` and gets one JSON document.
All three pages go through the agent's HTTP downloader, so limits and egress rules apply.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

from skep.archive.frames import Exchange, FrameMaker, read_records, split_response
from skep.downloaders.ports import Downloader, Fetched
from skep.downloaders.schemes import PlugIn
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings
from skep.model.states import FailureClass

Done = Callable[[Fetched], None]


class Failed(Exception):
    """A page could not be downloaded; carries its outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.detail)
        self.outcome = outcome


class EnterpriseKind:
    """The class that the entry point names: the agent creates one and opens it for each run."""

    name = "enterprise"
    schemes: tuple[str, ...] = ("enterprise",)

    def __init__(self, plug_in: PlugIn) -> None:
        self._plug_in = plug_in

    def open(self, run: str, settings: RunSettings) -> EnterpriseDownloader:
        frames = FrameMaker(self._plug_in.clock, self._plug_in.rng)
        return EnterpriseDownloader(self._plug_in.http.open(run, settings), frames)


class EnterpriseDownloader:
    """Calls `done` once for each request, on the event loop; never blocks it."""

    def __init__(self, http: Downloader, frames: FrameMaker) -> None:
        self._http = http
        self._frames = frames
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def active(self) -> int:
        return len(self._tasks)

    def start(self, work: Work, done: Done) -> None:
        task = asyncio.ensure_future(self._answer(work, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        # Active downloads end as `lost`, and the tasks end with them.
        await self._http.close()
        await asyncio.gather(*self._tasks)

    async def _answer(self, work: Work, done: Done) -> None:
        try:
            company = await self._company(work)
        except Failed as failed:
            done(Fetched(failed.outcome))
        except (ValueError, KeyError, TypeError) as error:
            detail = f"the registry answered with something else: {error}"
            done(Fetched(Outcome(work.id, FailureClass.CONTENT, detail=detail)))
        else:
            done(self._kept(work, company))

    async def _company(self, work: Work) -> dict[str, Any]:
        parts = urlsplit(work.uri)
        site, number = f"http://{parts.netloc}", parts.path.strip("/")
        hits = await self._json(work, f"{site}/search?number={quote(number)}")
        if not hits:
            detail = f"the registry knows no company {number!r}"
            raise Failed(Outcome(work.id, FailureClass.STATUS, 404, detail))
        about, filings = await asyncio.gather(
            self._json(work, f"{site}/companies/{hits[0]['id']}"),
            self._json(work, f"{site}/companies/{hits[0]['id']}/filings"),
        )
        return {"number": number, **about, "filings": filings}

    async def _json(self, work: Work, url: str) -> Any:
        ended: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        self._http.start(Work(work.id, url, headers=work.headers), ended.set_result)
        fetched = await ended
        if fetched.outcome.failure:
            raise Failed(fetched.outcome)
        return json.loads(split_response(read_records(fetched.frames)[0]).body)

    def _kept(self, work: Work, company: dict[str, Any]) -> Fetched:
        body = json.dumps(company, ensure_ascii=False).encode()
        exchange = Exchange(
            work.uri,
            status=200,
            reason="OK",
            response_headers=[("Content-Type", "application/json")],
            body=body,
        )
        frames = self._frames.exchange_frames(exchange)
        outcome = Outcome(work.id, status=200, received=len(body), length=len(frames))
        return Fetched(outcome, frames)
