"""One process = a center and an agent, over the same HTTP as anywhere else.

Used by `skep up`, by the demo and by tests. There is no second implementation of
anything here: only other drivers and fewer machines.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from random import Random

from skep.center.app import Center
from skep.center.auth import Role, ensure_token
from skep.center.server import CenterServer
from skep.errors import ConfigurationError
from skep.runtime.clock import Clock
from skep.runtime.ids import new_id
from skep.settings import Settings

ADMIN_TOKEN = "admin.token"  # noqa: S105 - a file's name
AGENT_TOKEN = "agent.token"  # noqa: S105 - a file's name


class LocalCenter:
    """A center with a data folder of its own: tokens, lock, server."""

    def __init__(self, settings: Settings, clock: Clock, rng: Random) -> None:
        self.folder = Path(settings.data)
        self.settings = settings
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.folder)
        self.admin_token = ensure_token(self.folder / ADMIN_TOKEN, Role.ADMIN)
        self.agent_token = ensure_token(self.folder / AGENT_TOKEN, Role.AGENT)
        name = _center_name(self.folder, clock, rng)
        self.center = Center.from_settings(name, settings, clock, rng)
        self.server = CenterServer(self.center, settings.center)

    @property
    def url(self) -> str:
        return self.server.url

    async def start(self) -> None:
        await self.server.start()
        auth = self.center.services.auth
        await auth.adopt(self.admin_token, Role.ADMIN)
        await auth.adopt(self.agent_token, Role.AGENT)
        await asyncio.to_thread(self._leave_address)

    def _leave_address(self) -> None:
        """Where the commands of this machine find the center."""
        (self.folder / "center.url").write_text(f"{self.url}\n")

    async def stop(self) -> None:
        await self.server.stop()
        os.close(self._lock)


def _lock(folder: Path) -> int:
    """One center per data folder; freed by the kernel when the process ends."""
    file = os.open(folder / "center.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise ConfigurationError(
            f"another center works in {folder}; stop it or choose another folder with --data"
        ) from error
    return file


def _center_name(folder: Path, clock: Clock, rng: Random) -> str:
    """A center keeps its name: its archive segments carry it."""
    file = folder / "center.name"
    if not file.exists():
        file.write_text(f"{new_id('center', clock.now(), rng)}\n")
    return file.read_text().strip()
