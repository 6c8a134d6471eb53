"""Separate machines on one machine: network namespaces, each with an address.

For tests that need agents with different addresses, or a cable that can be pulled: unlike with the
fault proxy, no handshake works without the cable. Needs root and `ip` (iproute2); raises
NotPermitted with the reason if the kernel or the container does not allow it.

    with Namespace() as home:
        agent = NamespacedAgent(home, folder, [f"http://{home.gateway}:{port}"], token_file)
        home.pull()     # the cable is out
        home.plug()

`gateway` is this machine as the namespace sees it: a server for the namespace must listen there, or
on 0.0.0.0. Nothing is forwarded to the outside. Addresses are from 198.18.0.0/15, which is reserved
for such tests.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Self

from skep.testing.private import NotPermitted, find_program
from skep.testing.processes import AgentProcess

NETWORK = IPv4Network("198.18.0.0/15")
#: Two usable addresses, one for each end.
PREFIX = 30
TRIES = 20


class Namespace:
    """One machine, connected to this one by one cable."""

    def __init__(self) -> None:
        self._ip = find_program("ip", "iproute2")
        self.name = f"skep-{secrets.token_hex(4)}"
        # Names of interfaces are limited to 15 characters.
        self._ours, self._theirs = f"sk{self.name[5:]}a", f"sk{self.name[5:]}b"
        self.gateway = self.address = ""

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # Deleting the namespace deletes its end of the cable, and so ours.
        self._try("link", "delete", self._ours)
        self._try("netns", "delete", self.name)

    @property
    def prefix(self) -> list[str]:
        """Prefix of a command that runs in the namespace; the process id stays the same."""
        return [self._ip, "netns", "exec", self.name]

    def pull(self) -> None:
        """Pull the cable: nothing arrives, nothing is refused, and neither side gets an error."""
        self._run("link", "set", self._ours, "down")

    def plug(self) -> None:
        self._run("link", "set", self._ours, "up")

    def _make(self) -> None:
        self._run("netns", "add", self.name)
        pair = ["type", "veth", "peer", "name", self._theirs, "netns", self.name]
        self._run("link", "add", self._ours, *pair)
        self._take_addresses()
        inside = ["-n", self.name]
        self._run("address", "add", f"{self.gateway}/{PREFIX}", "dev", self._ours)
        self._run("link", "set", self._ours, "up")
        self._run(*inside, "address", "add", f"{self.address}/{PREFIX}", "dev", self._theirs)
        self._run(*inside, "link", "set", self._theirs, "up")
        self._run(*inside, "link", "set", "lo", "up")
        self._run(*inside, "route", "add", "default", "via", self.gateway)

    def _take_addresses(self) -> None:
        taken = self._run("-o", "-4", "address")
        subnets = NETWORK.num_addresses >> (32 - PREFIX)
        for _ in range(TRIES):
            first = NETWORK[secrets.randbelow(subnets) * 4]
            if f" {first + 1}/" not in taken:
                self.gateway, self.address = str(first + 1), str(first + 2)
                return
        raise NotPermitted("no free addresses for a network namespace")

    def _run(self, *words: str) -> str:
        done = self._try(*words)
        if done.returncode:
            raise NotPermitted(f"no network namespace: {done.stderr.strip()}")
        return done.stdout

    def _try(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self._ip, *words], capture_output=True, text=True, check=False)


class NamespacedAgent(AgentProcess):
    """`skep agent` with a separate address."""

    def __init__(
        self,
        home: Namespace,
        folder: Path,
        centers: Sequence[str],
        token_file: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        allowed = {"SKEP_EGRESS_ALLOW": str(NETWORK)}
        super().__init__(folder, centers, token_file, {**allowed, **(env or {})})
        self.home = home

    def _command(self, port: int) -> list[str]:
        return [*self.home.prefix, *super()._command(port)]
