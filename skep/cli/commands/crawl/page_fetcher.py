"""Downloads single pages with the downloader of an agent, without a center.

Used by commands that work on one page. The result is what a spider would get: the same engine,
the same limits, the same archived frames.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Self

from skep.downloaders.registry import kinds
from skep.embed.embedded import with_loopback
from skep.model.hosts.named_places import places_in
from skep.model.request import Work
from skep.runtime.clock import SystemClock
from skep.spiders.authoring.request import Request
from skep.spiders.driving.request_meta import sealed
from skep.spiders.ports import Page

if TYPE_CHECKING:
    from skep.downloaders.ports import Downloader, Fetched
    from skep.model.run import RunSettings
    from skep.settings import Settings


class Fetcher:
    """Use it with `async with`; cookies and connections are kept between calls of `fetch`."""

    def __init__(self, settings: Settings, run_settings: RunSettings) -> None:
        self._settings = with_loopback(settings)
        #: Hosts and ports that the user named in a URL; redirects do not add to them.
        self._places: set[str] = set()
        self._run_settings = run_settings
        self._downloader: Downloader
        self._count = 0

    async def __aenter__(self) -> Self:
        rng = Random()  # noqa: S311 - record ids, no secrets
        known = kinds(SystemClock(), rng, self._settings.egress, places=self._places)
        self._downloader = known[self._run_settings.downloader].open("fetch", self._run_settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._downloader.close()

    async def fetch(self, request: Request, *, named: bool = True) -> Page:
        """Download a page; `failure` of the result says why a download failed. `named`: the user
        gave the URL, so its host may have a loopback or private address."""
        self._count += 1
        if named:
            self._places |= places_in([request.url])
        wanted = sealed(request)
        work = Work(
            self._count, wanted.uri, wanted.method, wanted.headers, wanted.body, {}, wanted.session
        )
        ended: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        self._downloader.start(work, ended.set_result)
        fetched = await ended
        outcome = fetched.outcome
        return Page(
            id=self._count,
            uri=request.url,
            state="dead" if outcome.failure else "done",
            status=outcome.status,
            failure=outcome.failure,
            detail=outcome.detail,
            meta=wanted.meta,
            final_uri=outcome.final_uri,
            frames=fetched.frames,
            elapsed_us=outcome.elapsed_us,
        )
