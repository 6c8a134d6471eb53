"""The `curl` kind: options of curl's command line, executed by the engine of `http`. Agents only.

libcurl runs inside the agent, as for `http`, so that the egress policy, cookies, limits and the
archive apply to it too; no curl program is started.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from skep.downloaders.curl_options import CurlPlan, parse
from skep.downloaders.http import HttpDownloader, HttpKind
from skep.downloaders.ports import Fetched
from skep.downloaders.session_state import SessionState
from skep.model.downloader_kinds import CURL
from skep.model.request import Work
from skep.model.run import RunSettings


class CurlKind:
    """Opens a downloader that applies the curl options of the run."""

    traits = CURL
    name = CURL.name
    schemes = CURL.schemes

    def __init__(self, http: HttpKind) -> None:
        self._http = http

    def open(self, run: str, settings: RunSettings) -> CurlDownloader:
        """Raises BadOption; a center refuses such a run before."""
        plan = parse(settings.curl)
        return CurlDownloader(self._http.open(run, planned(settings, plan)), plan)


def planned(settings: RunSettings, plan: CurlPlan) -> RunSettings:
    """The settings of the run, restricted by the options and never extended."""
    headers = {**settings.headers, **plan.headers}
    if plan.data and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = plan.data_type
    follow = 0
    if plan.redirects is not None:
        wanted = settings.redirects if plan.most_redirects is None else plan.most_redirects
        follow = min(wanted, settings.redirects)
    return replace(
        settings,
        headers=headers,
        redirects=follow,
        time_limit=min(plan.time_limit or settings.time_limit, settings.time_limit),
        body_limit=min(plan.body_limit or settings.body_limit, settings.body_limit),
    )


class CurlDownloader:
    """Adds the method and the data of the options to each plain request."""

    def __init__(self, http: HttpDownloader, plan: CurlPlan) -> None:
        self._http = http
        self._verb = plan.verb
        self._body = plan.body

    @property
    def active(self) -> int:
        return self._http.active

    def start(self, work: Work, done: Callable[[Fetched], None]) -> None:
        if work.method == "GET" and not work.body:
            work = replace(work, method=self._verb, body=self._body)
        self._http.start(work, done)

    def recall(self) -> None:
        self._http.recall()

    def pace(self, site: str, spacing: float) -> None:
        self._http.pace(site, spacing)

    @property
    def running(self) -> int:
        return self._http.running

    def hold(self) -> None:
        self._http.hold()

    def resume(self, trouble: str) -> None:
        self._http.resume(trouble)

    @property
    def session_state(self) -> SessionState:
        return self._http.session_state

    def inherit(self, session_state: SessionState) -> None:
        self._http.inherit(session_state)

    async def note_session_state(self) -> None:
        await self._http.note_session_state()

    async def close(self) -> None:
        await self._http.close()
