"""The private servers themselves: what failure tests and benchmarks rely on."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from skep.testing import private, servers
from skep.testing.polling import until_sync

STARTERS: dict[str, Callable[..., servers.Server]] = {
    "postgres": servers.postgres,
    "mariadb": servers.mariadb,
    "redis": servers.redis,
    "nginx": servers.nginx,
    "tinyproxy": servers.tinyproxy,
}
PATIENCE = 20.0


@pytest.fixture(params=STARTERS)
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """A server of this test alone; the session's one is asked for to skip or to fail."""
    request.getfixturevalue(f"{request.param}_server")
    with STARTERS[request.param]() as server:
        yield server


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((private.HOST, port)) == 0


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and " Z " not in stat.read_text()


def test_it_comes_back_on_its_port_after_a_kill_and_after_a_stop(server: servers.Server) -> None:
    port = server.port
    members = private.process_tree(server.pid)
    server.kill()
    until_sync(lambda: not any(alive(pid) for pid in members), seconds=PATIENCE)
    assert not listens(port)
    server.start()
    assert (server.port, listens(port)) == (port, True)
    server.stop()
    assert not listens(port)
    server.start()
    assert (server.port, server.running) == (port, True)


def test_a_paused_server_does_not_answer_until_it_is_resumed(redis_server: servers.Redis) -> None:
    with servers.redis() as server:
        server.pause()
        assert private.exchange(server.port, b"PING\r\n", 5) == b""
        server.resume()
        assert private.exchange(server.port, b"PING\r\n", 5) == b"+PONG"


def test_a_paused_server_can_be_stopped(server: servers.Server) -> None:
    server.pause()
    server.stop()
    assert not server.running


def test_nothing_is_left_behind(redis_server: servers.Redis) -> None:
    with servers.redis() as server:
        folder, pid = server.folder, server.pid
    assert not folder.exists()
    assert not alive(pid)


def test_a_folder_that_was_given_is_kept(redis_server: servers.Redis, tmp_path: Path) -> None:
    with servers.redis(tmp_path / "redis", durable=True) as server:
        server.execute("SET", "bee", "1")
        server.kill()
        server.start()
        assert server.execute("GET", "bee").strip() == "1"
    with servers.redis(tmp_path / "redis", durable=True) as server:
        assert server.execute("GET", "bee").strip() == "1"


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_what_a_durable_database_has_committed_survives_a_kill(
    kind: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(f"{kind}_server")
    make = {"postgres": servers.postgres, "mariadb": servers.mariadb}[kind]
    with make(durable=True) as server:
        assert isinstance(server, servers.Postgres | servers.MariaDB)
        database = urlsplit(server.fresh_database()).path[1:]
        server.execute("CREATE TABLE kept (n int)", database)
        server.execute("INSERT INTO kept VALUES (7)", database)
        server.kill()
        server.start()
        assert server.execute("SELECT n FROM kept", database).strip() == "7"


def test_fresh_databases_are_empty_and_apart(
    postgres_server: servers.Postgres, mariadb_server: servers.MariaDB
) -> None:
    for server in (postgres_server, mariadb_server):
        one, other = (urlsplit(server.fresh_database()).path[1:] for _ in range(2))
        server.execute("CREATE TABLE seen (n int)", one)
        with pytest.raises(servers.ServerFailed, match="seen"):
            server.execute("SELECT * FROM seen", other)


def test_a_fresh_redis_database_is_empty(redis_server: servers.Redis) -> None:
    for _ in range(2 * servers.Redis.DATABASES):
        number = urlsplit(redis_server.fresh_database()).path[1:]
        assert redis_server.execute("-n", number, "DBSIZE").strip() == "0"
        redis_server.execute("-n", number, "SET", "left", "behind")


def test_the_server_dies_with_its_owner_even_when_that_is_killed(
    redis_server: servers.Redis,
) -> None:
    """No orphans: the guard ends the server and removes its folder."""
    code = (
        "from skep.testing.servers import redis\n"
        "server = redis()\nserver.start()\n"
        "print(server.pid, server.folder, flush=True)\n"
        "input()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert alive(int(pid))
        owner.kill()
    until_sync(lambda: not alive(int(pid)), seconds=PATIENCE)
    until_sync(lambda: not Path(folder).exists(), seconds=PATIENCE)


def test_a_missing_program_names_its_package() -> None:
    with pytest.raises(servers.ServerMissing, match="apt-get install honey-server") as caught:
        private.find_program("no-such-honey-server", "honey-server")
    assert caught.value.package == "honey-server"


def test_a_server_that_cannot_start_says_why(redis_server: servers.Redis, tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").write_text("a file where a folder should be")
    with (
        pytest.raises(servers.ServerFailed, match="did not start") as caught,
        servers.redis(tmp_path, durable=True),
    ):
        pass
    assert "appendonlydir" in str(caught.value) or "AOF" in str(caught.value)


def test_a_free_port_is_not_one_that_clients_are_given() -> None:
    """Else a client that retries could be connected to itself while the server is down."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {private.free_port() for _ in range(50)}
    assert len(ports) > 25
    assert first <= 10_000 or all(port < first for port in ports)


def test_nginx_serves_its_folder(nginx_server: servers.Nginx) -> None:
    (nginx_server.root / "hello.html").write_text("hello")
    with urllib.request.urlopen(f"{nginx_server.url}hello.html") as response:
        assert response.read() == b"hello"


def test_a_proxy_with_a_password_lets_only_those_in_who_know_it(
    nginx_server: servers.Nginx, tinyproxy_server: servers.Tinyproxy
) -> None:
    (nginx_server.root / "page.html").write_text("through")

    def fetch(proxy: str) -> bytes:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy}))
        with opener.open(f"{nginx_server.url}page.html") as response:
            return bytes(response.read())

    assert fetch(tinyproxy_server.url) == b"through"
    with servers.tinyproxy(user="bee", password="honey") as proxy:
        assert fetch(proxy.url) == b"through"
        with pytest.raises(urllib.error.HTTPError):
            fetch(f"http://bee:wrong@127.0.0.1:{proxy.port}")
