"""A whole cluster on one machine: database, Redis, centers and agents, from local binaries.

`skep cluster dev` starts this program; it stays in the foreground, restarts processes that end, and
stops everything in order. Data and ports stay in its folder. Its servers have no passwords: it is
for one developer's machine, never for a network.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import msgspec

from skep.runtime.file_lock import try_lock
from skep.testing.private import HOST, Server, ServerFailed, ServerMissing, free_port
from skep.testing.processes import AgentProcess, CenterProcess, SkepProcess
from skep.testing.servers import MariaDB, Postgres, Redis

#: Seconds between two checks of the processes.
LOOK = 0.3
#: Minimum seconds between two starts of one process, so that a crash loop does not spin.
REST = 2.0
DATABASE = "skep"
#: Variables that the cluster sets; all other variables apply to centers and agents too.
OURS = ("SKEP_DATA", "SKEP_STORE_URL", "SKEP_BUS_URL", "SKEP_CENTER", "SKEP_TOKEN_FILE")


class ClusterPart(msgspec.Struct):
    """One process: its address and its process id."""

    name: str
    address: str
    pid: int


class Map(msgspec.Struct):
    """The addresses and files of the cluster."""

    folder: str
    centers: list[str]
    store: str
    bus: str
    token_file: str
    agent_token_file: str
    processes: list[ClusterPart]

    def text(self) -> str:
        """As text."""
        width = max(len(place.name) for place in self.processes)
        lines = [
            f"{place.name:<{width}}  {place.address}  (pid {place.pid})" for place in self.processes
        ]
        return "\n".join([*lines, f"{'token':<{width}}  {self.token_file}", "", self._advice()])

    def _advice(self) -> str:
        victim = next(place for place in self.processes if place.name.startswith("center"))
        return "\n".join(
            [
                "in another terminal:",
                f"  export SKEP_CENTER={','.join(self.centers)}",
                f"  export SKEP_TOKEN_FILE={self.token_file}",
                "  skep info",
                "  skep agents",
                "  echo https://example.org/ | skep submit first --new --wait -",
                f"  kill -9 {victim.pid}   # the others continue, and it is restarted",
                "Ctrl-C stops everything; the same command continues with the data in the folder.",
            ]
        )


class Cluster:
    """Database, Redis, centers and agents inside a `with` block."""

    def __init__(self, folder: Path, centers: int = 2, agents: int = 2, *, mysql: bool = False):
        self.folder = folder.absolute()
        self._make_folder()
        # Find both programs before anything is started, to report a missing one first.
        database = (MariaDB if mysql else Postgres)(self.folder / _kind(mysql), durable=True)
        self.database: Postgres | MariaDB = database
        self.redis = Redis(self.folder / "redis")
        self.centers = [self._center(number) for number in range(1, centers + 1)]
        self._agents = agents
        self.agents: list[AgentProcess] = []
        self._stack = ExitStack()

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # PostgreSQL does not run as root: its user must be able to pass through.
        self.folder.chmod(0o711 if os.geteuid() == 0 else 0o700)

    def _center(self, number: int) -> CenterProcess:
        folder = self.folder / f"center-{number}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return CenterProcess(folder)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def servers(self) -> dict[str, Server]:
        """In the order of their start; they stop in reverse order."""
        named: dict[str, Server] = {self.database.folder.name: self.database, "redis": self.redis}
        processes: list[SkepProcess] = [*self.centers, *self.agents]
        return {**named, **{process.folder.name: process for process in processes}}

    def _start(self) -> None:
        self._lock()
        self._take_ports()
        for server in (self.database, self.redis):
            self._stack.callback(server.close)
            server.start()
        self._make_database()
        for center in self.centers:
            center.env = self.environment()
            self._stack.callback(center.close)
            center.start()
        self._start_agents()
        self._keep_ports()

    def _start_agents(self) -> None:
        """Each starts with another center and knows all of them."""
        urls = [center.url for center in self.centers]
        for number in range(self._agents):
            first = number % len(urls)
            folder = self.folder / f"agent-{number + 1}"
            folder.mkdir(mode=0o700, exist_ok=True)
            known = [*urls[first:], *urls[:first]]
            agent = AgentProcess(folder, known, self.centers[0].agent_token)
            agent.env = {**self.environment(), "SKEP_AGENT_NAME": folder.name}
            self.agents.append(agent)
            self._stack.callback(agent.close)
            agent.start()

    def _lock(self) -> None:
        lock = try_lock(self.folder / "cluster.lock")
        if lock is None:
            raise ServerFailed(f"another cluster runs in {self.folder}; choose one with --folder")
        self._stack.callback(os.close, lock)

    def _make_database(self) -> None:
        if isinstance(self.database, Postgres):
            known = self.database.execute("SELECT datname FROM pg_database").split()
            if DATABASE not in known:
                self.database.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0")
        else:
            how = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            self.database.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE} {how}")

    @property
    def store_url(self) -> str:
        return f"{self.database.url.rpartition('/')[0]}/{DATABASE}"

    def environment(self) -> dict[str, str]:
        """Settings of centers and agents: defaults, except for addresses and folders."""
        given = {k: v for k, v in os.environ.items() if k.startswith("SKEP_") and k not in OURS}
        return {
            "SKEP_EGRESS_ALLOW": "127.0.0.0/8,::1/128",
            # A shared folder, unless S3 is configured.
            "SKEP_ARCHIVE_URL": str(self.folder / "archive"),
            **given,
            "SKEP_STORE_URL": self.store_url,
            "SKEP_BUS_URL": self.redis.url,
        }

    # The same ports at each start, unless another program uses them.

    @property
    def _ports_file(self) -> Path:
        return self.folder / "ports.json"

    def _take_ports(self) -> None:
        known: dict[str, int] = {}
        if self._ports_file.exists():
            known = msgspec.json.decode(self._ports_file.read_bytes(), type=dict[str, int])
        for name, server in self.servers.items():
            port = known.get(name, 0)
            server.port = port if port and _is_free(port) else free_port()

    def _keep_ports(self) -> None:
        ports = {name: server.port for name, server in self.servers.items() if server.port}
        self._ports_file.write_bytes(msgspec.json.encode(ports))

    # While it runs.

    def map(self) -> Map:
        first = self.centers[0]
        urls = {self.database.folder.name: self.store_url}
        places = [
            ClusterPart(name, urls.get(name, server.url), server.pid)
            for name, server in self.servers.items()
        ]
        return Map(
            str(self.folder),
            [center.url for center in self.centers],
            self.store_url,
            self.redis.url,
            str(first.folder / "admin.token"),
            str(first.agent_token),
            places,
        )

    def keep(self, ending: threading.Event) -> None:
        """Restart processes that end, until `ending` is set."""
        started = dict.fromkeys(self.servers, 0.0)
        while not ending.wait(LOOK):
            for name, server in self.servers.items():
                if server.running or time.monotonic() - started[name] < REST:
                    continue
                started[name] = time.monotonic()
                _say(f"{name} has ended; restarting")
                _say(_restarted(name, server))


def _restarted(name: str, server: Server) -> str:
    try:
        server.start()
    except ServerFailed as error:
        return f"{name}: {error}"
    return f"{name} is up again (pid {server.pid})"


def _kind(mysql: bool) -> str:
    return "mariadb" if mysql else "postgres"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="skep cluster dev", description=Cluster.__doc__)
    parser.add_argument("--folder", type=Path, default=Path("skep-cluster"))
    parser.add_argument("--centers", type=int, default=2)
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--mysql", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def _ends_with(*signals: signal.Signals) -> threading.Event:
    """An event that the first of these signals sets; a second one ends the program immediately,
    and the guards end its processes."""
    ending = threading.Event()

    def signalled(number: int, _frame: object) -> None:
        if ending.is_set():
            os._exit(128 + number)
        ending.set()

    for number in signals:
        signal.signal(number, signalled)
    return ending


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    chosen = _parse(arguments)
    ending = _ends_with(signal.SIGINT, signal.SIGTERM)
    _say(f"starting a cluster in {chosen.folder} ...")
    try:
        cluster = Cluster(chosen.folder, chosen.centers, chosen.agents, mysql=chosen.mysql)
        with cluster:
            found = cluster.map()
            _show(msgspec.json.encode(found).decode() if chosen.json else found.text())
            cluster.keep(ending)
            _say("stopping agents, centers, Redis and the database")
    except (ServerMissing, ServerFailed) as error:
        _say(f"error: {error}")
        return 1
    _say(f"stopped; the data stays in {chosen.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
