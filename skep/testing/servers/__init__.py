"""Private servers for tests and benchmarks: databases, storage, web servers, proxies.

This module exports those from Debian's binaries; `installed.py` describes them.
"""

from __future__ import annotations

from skep.testing.private import Server, ServerFailed, ServerMissing
from skep.testing.servers.installed import (
    Database,
    MariaDB,
    Microsocks,
    Nginx,
    Postgres,
    Redis,
    Tinyproxy,
    mariadb,
    microsocks,
    nginx,
    postgres,
    redis,
    tinyproxy,
)

__all__ = [
    "Database",
    "MariaDB",
    "Microsocks",
    "Nginx",
    "Postgres",
    "Redis",
    "Server",
    "ServerFailed",
    "ServerMissing",
    "Tinyproxy",
    "mariadb",
    "microsocks",
    "nginx",
    "postgres",
    "redis",
    "tinyproxy",
]
