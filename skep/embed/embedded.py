"""A center and an agent in one process, which communicate over HTTP as on two machines.

It opens and closes their resources; their own rooms implement them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

from skep.center.app import Center
from skep.center.center_name import center_name
from skep.center.data_folder import check_finished, leave_place, tell_copy
from skep.center.http.authentication import Role, ensure_token
from skep.center.http.server import CenterServer
from skep.downloaders.code.isolation import Isolation, isolation_of
from skep.errors import ConfigurationError, Revoked
from skep.model.hosts.named_places import is_loopback
from skep.model.logs import LogEntry
from skep.portal.routes import portal_routes
from skep.runtime.clock import Clock
from skep.runtime.file_lock import holder_of, try_lock
from skep.runtime.files import make_private, write_durably
from skep.settings import Settings

if TYPE_CHECKING:
    from skep.agent.launch import LaunchedAgent


log = logging.getLogger(__name__)


ADMIN_TOKEN = "admin.token"  # noqa: S105 - a file's name


AGENT_TOKEN = "agent.token"  # noqa: S105 - a file's name


#: Set by a command that starts a center as its child: the name for error messages.
STARTED_BY = "STARTED_BY_SKEP"


LOCK_LIMIT = 300


def with_loopback(settings: Settings) -> Settings:
    """Allow the embedded agent to reach loopback and private places that a user names (never by a
    link or a redirect), so that the demo works, unless the egress settings are set."""
    if settings.egress.allow or settings.egress.deny:
        return settings
    egress = msgspec.structs.replace(settings.egress, named=True)
    return msgspec.structs.replace(settings, egress=egress)


def with_local_code(settings: Settings) -> Settings:
    """Allow a center that only this machine can call to run user code without a sandbox if there is
    none, so that a bare machine works. An available sandbox is always used."""
    if not is_loopback(settings.center.host):
        return settings
    jobs, agent = settings.jobs, settings.agent
    if jobs.code == "boxed":
        jobs = msgspec.structs.replace(jobs, code="always")
    if agent.code == "boxed":
        agent = msgspec.structs.replace(agent, code="always")
    return msgspec.structs.replace(settings, jobs=jobs, agent=agent)


class LocalCenter:
    """A center with its own data folder: tokens, lock, server."""

    def __init__(self, settings: Settings, clock: Clock, rng: Random) -> None:
        self.folder = Path(settings.data)
        self.settings = settings
        if make_private(self.folder):
            log.warning("other users could read %s; made it private", self.folder)
        check_finished(self.folder)
        tell_copy(self.folder)
        self._lock = _lock(self.folder)
        try:
            self.admin_token = ensure_token(self.folder / ADMIN_TOKEN, Role.ADMIN)
            self.agent_token = ensure_token(self.folder / AGENT_TOKEN, Role.AGENT)
            name = center_name(settings, clock, rng)
            pages = portal_routes(clock, rng)
            self.center = Center.from_settings(name, settings, clock, rng, pages)
            self.server = CenterServer(self.center, settings.center)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def url(self) -> str:
        return self.server.url

    async def start(self) -> None:
        """Start it; after an error nothing stays open."""
        try:
            await self.server.start(self._adopt_tokens)
            await asyncio.to_thread(self._leave_address)
        except BaseException:
            await self.stop()
            raise

    async def _adopt_tokens(self) -> None:
        """Before any call is answered: an agent with an unknown token would end."""
        auth = self.center.services.auth
        name = self.center.services.name
        await auth.adopt(self.admin_token, Role.ADMIN, note=f"{ADMIN_TOKEN} of {name}")
        await auth.adopt(self.agent_token, Role.AGENT, note=f"{AGENT_TOKEN} of {name}")

    async def login_link(self) -> str:
        """A one-time login link for the first admin, who is created if there is none. Raises
        Conflict and StoreDown."""
        people = self.center.services.people
        user = await people.links.first_admin()
        secret, _until = await people.links.make(user.name)
        return people.link_url(self.url, secret)

    def _leave_address(self) -> None:
        """Write the address of the center for commands on this machine."""
        leave_place(self.folder)
        write_durably(self.folder / "center.url", f"{self.url}\n".encode())

    async def stop(self) -> None:
        """Can be called twice."""
        await self.server.stop()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class LocalAgent:
    """An agent in the process of its center. It uses HTTP like any other agent."""

    def __init__(self, center: LocalCenter, clock: Clock, rng: Random) -> None:
        self._center = center
        self._clock = clock
        self._rng = rng
        self._launched: LaunchedAgent | None = None
        self._task: asyncio.Task[None] | None = None
        self._isolation: asyncio.Future[Isolation] | None = None

    def prepare(self) -> None:
        """Start what needs no center: the test of the sandbox takes a tenth of a second, during
        which the center can start."""
        if self._isolation is None:
            ask = partial(isolation_of, self._center.settings.agent)
            self._isolation = asyncio.get_running_loop().run_in_executor(None, ask)

    async def start(self) -> str:
        """Returns the agent's name as soon as a center has accepted it."""
        self.prepare()
        launched = self._launched = await asyncio.to_thread(self._launch, await self._looked())
        task = self._task = asyncio.create_task(launched.agent.run())
        beaten = asyncio.create_task(launched.agent.heartbeats.beaten.wait())
        await asyncio.wait((task, beaten), return_when=asyncio.FIRST_COMPLETED)
        beaten.cancel()
        if task.done():
            task.result()
        return launched.registration.name

    async def _looked(self) -> Isolation:
        """Loads the agent meanwhile, in a thread, so that the center keeps answering."""
        await asyncio.to_thread(import_module, "skep.agent.launch")
        assert self._isolation is not None  # noqa: S101 - `start` prepares
        found, self._isolation = await self._isolation, None
        return found

    def _launch(self, isolation: Isolation) -> LaunchedAgent:
        from skep.agent.launch import LaunchedAgent

        center = self._center
        return LaunchedAgent(
            center.settings,
            [center.url],
            center.agent_token,
            center.folder / "agent",
            {},
            self._clock,
            self._rng,
            isolation,
        )

    def put_line(self, entry: LogEntry) -> None:
        """A log line of the agent; from any thread."""
        if self._launched is not None:
            self._launched.agent.logs.put(entry)

    async def ended(self) -> None:
        """Returns when a user ended the agent; raises the error that made it fail. An agent that
        got the command to restart is started again."""
        while self._task is not None and self._launched is not None:
            try:
                await asyncio.shield(self._task)
            except Revoked as error:  # revoked by a user; the center continues
                log.warning("the agent has ended: %s", error.detail)
                return
            if not self._launched.agent.restarting:
                return
            await self._launched.close()
            await self.start()

    async def stop(self) -> None:
        """Drain: active downloads may end, results are reported, the rest is returned."""
        if self._launched is None:
            return
        if self._task is not None:
            self._launched.agent.stop()
            # Its error was raised by `start` or `ended`; it must not stop the shutdown.
            await asyncio.gather(self._task, return_exceptions=True)
        await self._launched.close()


def _lock(folder: Path) -> int:
    """One center per data folder."""
    started = os.environ.pop(STARTED_BY, "") or " ".join(["skep", *sys.argv[1:]])
    lock = try_lock(folder / "center.lock", f"process {os.getpid()}: {started}"[:LOCK_LIMIT])
    if lock is None:
        holder = holder_of(folder / "center.lock")
        raise ConfigurationError(
            f"another center works in {folder}{f' ({holder})' if holder else ''}; stop it or "
            "choose another folder with --data"
        )
    return lock
