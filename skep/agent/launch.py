"""Creates an agent from settings, for a process or an embedded center. One folder is one agent, so
one process at a time holds a folder.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import msgspec

from skep.agent.agent_folder import agent_id
from skep.agent.app import Agent
from skep.agent.apps.capabilities import look
from skep.agent.machine_figures import describe
from skep.downloaders.code.isolation import Isolation, isolation_of
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.refused_kind import offered
from skep.downloaders.registry import kinds
from skep.errors import ConfigurationError
from skep.model.hosts.named_places import is_loopback
from skep.runtime.clock import Clock
from skep.runtime.file_lock import try_lock
from skep.settings import Settings
from skep.wire.client import CenterClient

log = logging.getLogger(__name__)


class LaunchedAgent:
    """An agent with its client and the lock on its folder; `close` it after it has ended."""

    def __init__(
        self,
        settings: Settings,
        urls: Sequence[str],
        token: str,
        folder: Path,
        labels: Mapping[str, str],
        clock: Clock,
        rng: Random,
        isolation: Isolation | None = None,
    ) -> None:
        """`isolation` is the result of `isolation_of`, if the caller has it already."""
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _hold(folder)
        isolation, centers = isolation or isolation_of(settings.agent), local_ports(urls)
        if settings.agent.code == "always" and not isolation.boxed:
            log.warning(
                "user code runs here without a sandbox and can read all files of this user: %s",
                isolation.why_not,
            )
        known = kinds(
            clock, rng, settings.egress, agent=settings.agent, isolation=isolation,
            centers=centers, as_received=lambda: self.agent.heartbeats.center_decodes,
            wrote=self._code_wrote,
        )  # fmt: skip
        agent = agent_id(folder, clock, rng)
        egress = EgressPolicy.of(settings.egress, centers=centers)
        offer = look(settings.agent, agent, isolation, egress)
        names = (*offered(known.values()), *offer.kinds)
        registration = describe(agent, settings.agent, names)
        self.registration = msgspec.structs.replace(registration, labels=dict(labels))
        self.client = CenterClient(urls, token, clock, rng)
        self.agent = Agent(
            settings, self.client, known, self.registration, clock, rng, folder, offer
        )

    def _code_wrote(self, run: str, text: str) -> None:
        self.agent.logs.code_wrote(run, text)

    async def close(self) -> None:
        await self.client.close()
        os.close(self._lock)


def local_ports(urls: Sequence[str]) -> list[int]:
    """Ports of centers on loopback: downloads must not reach them."""
    parts = [urlsplit(url) for url in urls]
    near = [part for part in parts if part.hostname and is_loopback(part.hostname)]
    return [part.port or (443 if part.scheme == "https" else 80) for part in near]


def _hold(folder: Path) -> int:
    lock = try_lock(folder / "agent.lock")
    if lock is None:
        raise ConfigurationError(
            f"another agent works in {folder}; stop it or choose another folder with --data"
        )
    return lock
