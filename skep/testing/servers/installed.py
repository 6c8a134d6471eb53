"""Private servers for tests and benchmarks, from the binaries that Debian ships.

Each server runs on a free port of 127.0.0.1 and in its own folder, and ends with its `with` block:
also when this process is killed, because a small guard process waits at the other end of a pipe.
It never uses a server that existed before.

    with postgres() as server:
        url = server.fresh_database()
        server.kill()   # SIGKILL, as a power cut would
        server.start()  # again, on the same port, with what reached the disk

`durable=True` leaves fsync on, for benchmarks and crash tests. Every function takes a folder, which
is kept; without one a temporary folder is created, and removed at the end.
"""

from __future__ import annotations

import itertools
import os
import pwd
import signal
import subprocess
from pathlib import Path
from typing import Any, ClassVar

from skep.testing.private import HOST, Server, ServerFailed, exchange, find_program


class Database(Server):
    """A server with databases."""

    def __init__(self, folder: Path | None = None, *, durable: bool = False) -> None:
        super().__init__(folder, durable=durable)
        self._numbers = itertools.count(1)

    def fresh_database(self) -> str:
        """The URL of a new empty database; takes milliseconds."""
        raise NotImplementedError


class Postgres(Database):
    """PostgreSQL, user `postgres`, no password. Started by root, it runs as the user `nobody`."""

    package = "postgresql"
    program = "postgres"
    stop_signal = signal.SIGINT
    OPTIONS = ("max_connections=200", "log_checkpoints=off")
    #: Fast and small, for functional tests; benchmarks must not use it.
    CARELESS = (
        "fsync=off",
        "full_page_writes=off",
        "synchronous_commit=off",
        "shared_buffers=32MB",
    )

    @property
    def url(self) -> str:
        return self._url_of("postgres")

    def fresh_database(self) -> str:
        name = f"skep_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self._url_of(name)

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Run SQL with psql; returns unaligned text without headers."""
        return self._tool("psql", "-X", "-q", "-A", "-t", "-c", sql, self._url_of(database))

    def _url_of(self, name: str) -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/{name}"

    def _prepare(self) -> None:
        self._hand_over_folder()
        data = str(self.folder / "data")
        if not (self.folder / "data" / "PG_VERSION").exists():
            arguments = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]
            self._tool("initdb", "-D", data, "--no-sync", *arguments)

    def _hand_over_folder(self) -> None:
        options = self._process_options()
        if "user" not in options:
            return
        os.chown(self.folder, options["user"], options["group"])
        test = [find_program("test", "coreutils"), "-w", str(self.folder)]
        if subprocess.run(test, check=False, **options).returncode:
            raise ServerFailed(
                f"PostgreSQL does not run as root, and user `nobody` cannot read {self.folder}; "
                "choose another folder, for example below /var/tmp"
            )

    def _command(self, port: int) -> list[str]:
        settings = (*self.OPTIONS, *(() if self.durable else self.CARELESS))
        flags = itertools.chain.from_iterable(("-c", setting) for setting in settings)
        place = ["-D", str(self.folder / "data"), "-k", str(self.folder)]
        return [self._binary, *place, "-p", str(port), "-h", HOST, *flags]

    def _answers(self, port: int) -> bool:
        # A start-up message for protocol 3.0: authentication (R) when it is ready, else E.
        body = b"\0\3\0\0user\0postgres\0database\0postgres\0\0"
        return exchange(port, (len(body) + 4).to_bytes(4, "big") + body) == b"R"

    def _process_options(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {"cwd": "/"}
        nobody = pwd.getpwnam("nobody")
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": "/"}


class MariaDB(Database):
    """MariaDB, user `root`, no password."""

    package = "mariadb-server"
    program = "mariadbd"
    OPTIONS = ("--skip-name-resolve", "--max-connections=200")
    #: Fast and small, for functional tests; benchmarks must not use it.
    CARELESS = (
        "--innodb-buffer-pool-size=32M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-flush-method=nosync",
        "--innodb-doublewrite=0",
    )

    @property
    def url(self) -> str:
        return self._url_of("mysql")

    def fresh_database(self) -> str:
        name = f"skep_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        return self._url_of(name)

    def execute(self, sql: str, database: str = "mysql") -> str:
        """Run SQL with the mariadb client; returns text without headers."""
        place = ["-h", HOST, "-P", str(self.port), "-u", "root"]
        return self._tool("mariadb", "--no-defaults", *place, "-N", "-B", "-e", sql, database)

    def _url_of(self, name: str) -> str:
        return f"mysql://root@{HOST}:{self.port}/{name}"

    def _prepare(self) -> None:
        data = self.folder / "data"
        if not (data / "mysql").exists():
            flags = ["--auth-root-authentication-method=normal", "--skip-test-db", *self._user()]
            place = [f"--datadir={data}", self._tmpdir()]
            self._tool("mariadb-install-db", "--no-defaults", *place, *flags)

    def _tmpdir(self) -> str:
        """A private folder: a starting MariaDB deletes the temporary tables of others there."""
        folder = self.folder / "tmp"
        folder.mkdir(exist_ok=True)
        return f"--tmpdir={folder}"

    def _user(self) -> list[str]:
        return ["--user=root"] if os.geteuid() == 0 else []

    def _command(self, port: int) -> list[str]:
        return [
            self._binary,
            "--no-defaults",
            *self._user(),
            f"--datadir={self.folder / 'data'}",
            self._tmpdir(),
            f"--port={port}",
            f"--bind-address={HOST}",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            *self.OPTIONS,
            *(() if self.durable else self.CARELESS),
        ]

    def _answers(self, port: int) -> bool:
        return bool(exchange(port, b""))


class Redis(Database):
    """Redis; `durable=True` syncs its log after every command."""

    package = "redis-server"
    program = "redis-server"
    DATABASES = 16

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def fresh_database(self) -> str:
        """An empty database; after sixteen it starts with the first again."""
        number = next(self._numbers) % self.DATABASES
        self.execute("-n", str(number), "FLUSHDB")
        return f"redis://{HOST}:{self.port}/{number}"

    def execute(self, *arguments: str) -> str:
        """Run a command with redis-cli."""
        return self._tool("redis-cli", "-h", HOST, "-p", str(self.port), "-e", *arguments)

    def _command(self, port: int) -> list[str]:
        keep = ["--appendonly", "yes" if self.durable else "no", "--appendfsync", "always"]
        place = ["--port", str(port), "--bind", HOST, "--dir", str(self.folder)]
        return [self._binary, *place, "--save", "", *keep]

    def _answers(self, port: int) -> bool:
        return exchange(port, b"PING\r\n", size=5) == b"+PONG"


class Nginx(Server):
    """nginx, which serves the files of `root`."""

    package = "nginx-light"
    program = "nginx"

    def __init__(self, folder: Path | None = None, *, root: Path | None = None) -> None:
        super().__init__(folder)
        self.root = root or self.folder / "www"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def _command(self, port: int) -> list[str]:
        self.root.mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "nginx.conf"
        configuration.write_text(self._configuration(port))
        errors = str(self.folder / "error.log")
        return [self._binary, "-p", str(self.folder), "-c", str(configuration), "-e", errors]

    def _configuration(self, port: int) -> str:
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"  {kind}_temp_path {self.folder / kind};\n" for kind in kinds)
        return (
            f"{'user root;' if os.geteuid() == 0 else ''}\n"
            f"daemon off;\nworker_processes 1;\npid {self.folder / 'pid'};\n"
            "events { worker_connections 4096; }\n"
            f"http {{\n{temporary}"
            "  access_log off;\n  keepalive_requests 10000000;\n  default_type text/html;\n"
            f"  server {{ listen {HOST}:{port}; root {self.root}; }}\n}}\n"
        )


class Proxy(Server):
    """A proxy that requires a user and a password if they are given."""

    scheme: ClassVar[str]

    def __init__(self, folder: Path | None = None, *, user: str = "", password: str = "") -> None:
        super().__init__(folder)
        self.user, self.password = user, password

    @property
    def url(self) -> str:
        login = f"{self.user}:{self.password}@" if self.user else ""
        return f"{self.scheme}://{login}{HOST}:{self.port}"


class Tinyproxy(Proxy):
    """An HTTP proxy."""

    package = "tinyproxy"
    program = "tinyproxy"
    scheme = "http"

    def _command(self, port: int) -> list[str]:
        login = f"BasicAuth {self.user} {self.password}\n" if self.user else ""
        configuration = self.folder / "tinyproxy.conf"
        configuration.write_text(f"Port {port}\nListen {HOST}\nAllow {HOST}\nTimeout 60\n{login}")
        return [self._binary, "-d", "-c", str(configuration)]


class Microsocks(Proxy):
    """A SOCKS5 proxy."""

    package = "microsocks"
    program = "microsocks"
    scheme = "socks5h"

    def _command(self, port: int) -> list[str]:
        login = ["-u", self.user, "-P", self.password] if self.user else []
        return [self._binary, "-i", HOST, "-p", str(port), *login]

    def _answers(self, port: int) -> bool:
        # A greeting that offers "no login" and "user and password"; version 5 answers.
        return exchange(port, b"\5\2\0\2") == b"\5"


def postgres(folder: Path | None = None, *, durable: bool = False) -> Postgres:
    """A PostgreSQL server; use it in a `with` statement."""
    return Postgres(folder, durable=durable)


def mariadb(folder: Path | None = None, *, durable: bool = False) -> MariaDB:
    """A MariaDB server; use it in a `with` statement."""
    return MariaDB(folder, durable=durable)


def redis(folder: Path | None = None, *, durable: bool = False) -> Redis:
    """A Redis server; use it in a `with` statement."""
    return Redis(folder, durable=durable)


def nginx(root: Path | None = None, folder: Path | None = None) -> Nginx:
    """An nginx that serves the files of `root`; use it in a `with` statement."""
    return Nginx(folder, root=root)


def tinyproxy(folder: Path | None = None, *, user: str = "", password: str = "") -> Tinyproxy:
    """An HTTP proxy; use it in a `with` statement."""
    return Tinyproxy(folder, user=user, password=password)


def microsocks(folder: Path | None = None, *, user: str = "", password: str = "") -> Microsocks:
    """A SOCKS5 proxy; use it in a `with` statement."""
    return Microsocks(folder, user=user, password=password)
