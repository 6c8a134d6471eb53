"""The routes of a center for applications, in addition to those of `CenterDouble`: packages,
desired states, reports and logs.

Logs are stored by offset, each byte once, as in a center. Data in memory, real HTTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from aiohttp import web

from skep.agent.launch import LaunchedAgent
from skep.model.jobs.app import AppSpec, InstanceState
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, Settings
from skep.testing.doubles.center import CenterDouble, listening
from skep.testing.grounds.isolation import code_setting
from skep.wire import codec, messages

RUN = "app-run"
#: Long enough for a busy machine.
PATIENCE = 60.0


class AppsDouble(CenterDouble):
    """`give` packages, `want` instances, then check `told` and `logs`."""

    def __init__(self, heartbeat_every: float = 0.05) -> None:
        super().__init__(heartbeat_every)
        self.packages: dict[str, bytes] = {}
        self.wanted: dict[tuple[str, int], messages.AppWish] = {}
        #: The newest report of each instance.
        self.told: dict[tuple[str, int, int], messages.AppReport] = {}
        self.history: list[messages.AppReport] = []
        self.logs: dict[tuple[str, int, int], bytearray] = {}
        self.dropped: dict[tuple[str, int, int], int] = {}
        self.pieces: list[messages.AppLog] = []
        self.app_asks = 0

    # Input of a test.

    def give(self, files: Mapping[str, str | bytes]) -> str:
        """Add a zip of these files as a package; returns its digest."""
        return self.give_bytes(zipped(files))

    def give_bytes(self, data: bytes) -> str:
        """Add any bytes as a package; returns their digest."""
        digest = hashlib.sha256(data).hexdigest()
        self.packages[digest] = data
        return digest

    async def want(self, no: int = 0, token: int = 1, **fields: Any) -> tuple[str, int, int]:
        """Request an instance: fields of the spec, and `state` and `round`."""
        state = fields.pop("state", InstanceState.RUNNING)
        round_ = fields.pop("round", 0)
        if fields.get("package"):
            fields.setdefault("package_kind", "zip")
        wish = messages.AppWish(RUN, no, token, AppSpec(**fields), state, round_)
        await self.want_as(wish)
        return RUN, no, token

    async def want_as(self, wish: messages.AppWish) -> None:
        self.wanted[wish.run, wish.no] = wish
        await self.push(messages.Command("apps"))

    async def change(self, no: int = 0, **changes: Any) -> None:
        """Change the `state`, `round` or `token` of the same instance."""
        before = self.wanted[RUN, no]
        fields = {"state": before.state, "round": before.round, "token": before.token, **changes}
        await self.want_as(
            messages.AppWish(
                RUN, no, fields["token"], before.spec, fields["state"], fields["round"]
            )
        )

    async def want_no_more(self, no: int = 0) -> None:
        """Withdraw an instance from the agent."""
        del self.wanted[RUN, no]
        await self.push(messages.Command("apps"))

    # Output for a test.

    def state(self, key: tuple[str, int, int]) -> InstanceState | None:
        report = self.told.get(key)
        return report.state if report is not None else None

    async def until_state(
        self, key: tuple[str, int, int], state: InstanceState, seconds: float = PATIENCE
    ) -> messages.AppReport:
        """The report with this state."""
        try:
            await self.until(lambda: self.state(key) is state, seconds)
        except TimeoutError as error:
            raise AssertionError(f"not {state}, but {self.told.get(key)}") from error
        return self.told[key]

    async def until_log(
        self, key: tuple[str, int, int], text: bytes, seconds: float = PATIENCE
    ) -> None:
        try:
            await self.until(lambda: text in self.logs.get(key, b""), seconds)
        except TimeoutError as error:
            raise AssertionError(f"{text!r} not in {bytes(self.logs.get(key, b''))!r}") from error

    # Routes.

    def routes(self, app: web.Application) -> None:
        super().routes(app)
        app.router.add_post("/node/apps", self._route("apps", self._apps))
        app.router.add_post("/node/app-log", self._route("app-log", self._app_log))
        app.router.add_get("/node/packages/{digest}", self._package)

    async def _apps(self, data: bytes) -> messages.AppsReply:
        ask = codec.decode(data, messages.AppsAsk)
        self.app_asks += 1
        for report in ask.instances:
            key = (report.run, report.no, report.token)
            if self.told.get(key) != report:
                self.told[key] = report
                self.history.append(report)
        return messages.AppsReply(list(self.wanted.values()))

    async def _app_log(self, data: bytes) -> messages.AppLogReply:
        piece = codec.decode(data, messages.AppLog)
        self.pieces.append(piece)
        key = (piece.run, piece.no, piece.token)
        kept = self.logs.setdefault(key, bytearray())
        known = len(kept) + self.dropped.get(key, 0)
        if piece.offset > known and piece.dropped:
            self.dropped[key] = self.dropped.get(key, 0) + piece.offset - known
            known = piece.offset
        if piece.offset <= known < piece.offset + len(piece.data):
            kept += piece.data[known - piece.offset :]
            known = piece.offset + len(piece.data)
        return messages.AppLogReply(known)

    async def _package(self, request: web.Request) -> web.Response:
        self._check(request)
        data = self.packages.get(request.match_info["digest"])
        return web.Response(status=404) if data is None else web.Response(body=data)


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    """A zip with these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def apps_double(heartbeat_every: float = 0.05) -> AbstractAsyncContextManager[AppsDouble]:
    """A double that listens until the end of the context."""
    return listening(AppsDouble(heartbeat_every))


@asynccontextmanager
async def hosting_agent(
    double: AppsDouble, folder: Path, settings: AgentSettings | None = None
) -> AsyncIterator[LaunchedAgent]:
    """An agent in this process that receives commands; drained at the end."""
    clock, rng = SystemClock(), Random(7)  # noqa: S311  (seeded, so that a test repeats)
    quick = AgentSettings(lease_wait=1.0, drain_seconds=1.0, code=code_setting())
    chosen = Settings(agent=settings or quick)
    launched = LaunchedAgent(chosen, [double.url], double.token, folder, {}, clock, rng)
    task = asyncio.ensure_future(launched.agent.run())
    try:
        await double.until(lambda: double.listeners > 0 and double.app_asks > 0, PATIENCE)
        yield launched
    finally:
        launched.agent.stop()
        await task
        await launched.close()
