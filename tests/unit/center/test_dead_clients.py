"""A client that leaves before its stream begins is not an error."""

from __future__ import annotations

import socket
from types import SimpleNamespace

from skep.center.http.asgi import drop_dead_client
from skep.center.http.connections.protocol import SCOPE_KEY


def test_a_closed_connection_is_left_alone() -> None:
    closed = socket.socket()
    closed.close()
    transport = SimpleNamespace(get_extra_info=lambda _name: closed)
    drop_dead_client({SCOPE_KEY: SimpleNamespace(transport=transport)})
    assert closed.fileno() == -1


def test_an_open_connection_gets_a_limit() -> None:
    with socket.socket() as line:
        transport = SimpleNamespace(get_extra_info=lambda _name: line)
        drop_dead_client({SCOPE_KEY: SimpleNamespace(transport=transport)})
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0
