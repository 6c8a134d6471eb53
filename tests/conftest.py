"""The test ground: real servers, started when a test first asks for one.

Each pytest process (each xdist worker too) has servers of its own and ends them when it
ends. A server that is not installed skips its tests at a desk and fails them where
CI=true or SKEP_TESTS_NEED_SERVERS=1. A test that kills a server starts its own one, with
`skep.testing.servers`, and leaves these alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest

from skep.testing import servers
from skep.testing.clock import ManualClock
from skep.testing.needs import needs, servers_are_needed, unless_absent
from skep.testing.servers import object_store
from skep.testing.skew import find_library

#: The table of faults (`make faults`); what a machine does not have.
pytest_plugins = ["skep.testing.figures", "skep.testing.needs_plugin"]
AnyServer = TypeVar("AnyServer", bound=servers.Server)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long; runs in `make test-all` only")
    # Hundreds of processes are started: they compile once, and leave nothing beside the code.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(config.rootpath / ".pytest_cache" / "bytecode")
    # A busy machine is not a finding, and CI tries the same examples every time; at a desk
    # the examples are new in each run.
    hypothesis.settings.register_profile(
        "skep",
        deadline=None,
        derandomize=servers_are_needed(),
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("skep")


def for_the_session(make: Callable[[], AnyServer]) -> Iterator[AnyServer]:
    """Start a server, or skip or fail when it is not installed."""
    with ExitStack() as stack:
        with unless_absent():
            server = make()
            stack.enter_context(server)
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers.Postgres]:
    yield from for_the_session(servers.postgres)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[servers.MariaDB]:
    yield from for_the_session(servers.mariadb)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Redis]:
    yield from for_the_session(servers.redis)


@pytest.fixture(scope="session")
def nginx_server() -> Iterator[servers.Nginx]:
    """Serves the files that tests put into `nginx_server.root`."""
    yield from for_the_session(servers.nginx)


@pytest.fixture(scope="session")
def tinyproxy_server() -> Iterator[servers.Tinyproxy]:
    yield from for_the_session(servers.tinyproxy)


@pytest.fixture(scope="session")
def seaweedfs_server() -> Iterator[object_store.SeaweedFS]:
    """S3. Its tests are in the xdist group `s3`, so that one of these is enough."""
    yield from for_the_session(object_store.seaweedfs)


@pytest.fixture(scope="session")
def real_curl() -> None:
    """For tests that compare with the `curl` program."""
    needs("curl")


@pytest.fixture(scope="session")
def libfaketime() -> None:
    """For tests of processes whose clocks are wrong."""
    with unless_absent():
        find_library()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind that a store can live in."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'skep.db'}"
    name = {"postgresql": "postgres_server", "mariadb": "mariadb_server"}[request.param]
    server: servers.Database = request.getfixturevalue(name)
    return server.fresh_database()


@pytest.fixture
def redis_url(redis_server: servers.Redis) -> str:
    """An emptied Redis database."""
    return redis_server.fresh_database()


@pytest.fixture
def shared(tmp_path: Path, postgres_server: servers.Postgres, redis_url: str) -> dict[str, str]:
    """What several centers of one test share, as the environment of their processes."""
    return {
        "SKEP_STORE_URL": postgres_server.fresh_database(),
        "SKEP_BUS_URL": redis_url,
        "SKEP_ARCHIVE_URL": str(tmp_path / "archive"),
    }


@pytest.fixture
def clock() -> ManualClock:
    """A clock that a test moves by hand."""
    return ManualClock()
