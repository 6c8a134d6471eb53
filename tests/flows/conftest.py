"""What several files of user stories stand on; a file may put its own in the place of any."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from skep.testing.grounds.downloaders import PAGE, Open, http_downloaders
from skep.testing.needs import unless_absent
from skep.testing.servers.hostile_http import HostileServer, says
from skep.testing.servers.nginx_tls import TlsNginx


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Opens http downloaders."""
    async with http_downloaders() as open_one:
        yield open_one


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    """Has `/page`, and whatever a test adds."""
    async with HostileServer({"/page": says(PAGE)}) as server:
        yield server


@pytest.fixture(scope="module")
def tls() -> Iterator[TlsNginx]:
    """Serves `/page.html` to those who trust it."""
    server = TlsNginx()
    with unless_absent():
        server.make_certificate()
    with server:
        (server.root / "page.html").write_bytes(PAGE)
        yield server
