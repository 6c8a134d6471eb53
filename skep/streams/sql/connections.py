"""Opens connections to SQL servers for sinks and queries. Runs in their threads.

The server at the other end is not trusted: it never gets a file (LOCAL INFILE), and for a
job it gets no password, certificate or setting that the URL does not hold. A job's
connection goes to an address that its limits allow.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from skep.errors import ConfigurationError
from skep.streams.driver_options import check_host, check_options
from skep.streams.host_rules import HostRules, JobLimits

CONNECT_SECONDS = 10
#: Seconds of silence after which a MySQL server of a job is given up.
SILENT_SECONDS = 120
POSTGRESQL = ("postgresql", "postgres")
_PORTS = {"postgresql": 5432, "mysql": 3306}
#: The error number of MySQL for a server that cannot be reached.
_CANNOT_CONNECT = 2003
#: Not from files in the home folder of the center's user, and not by its Kerberos ticket.
_NO_FILES = {
    "passfile": "/dev/null",
    "sslcert": "/dev/null/none",
    "sslkey": "/dev/null/none",
    "gssencmode": "disable",
}


def check_server(url: sa.URL, *, of_job: bool) -> None:
    """Raises ConfigurationError for a URL that says more than it may; connects to nothing."""
    pairs = [(name, value) for name, values in url.normalized_query.items() for value in values]
    check_options(_scheme(url), pairs, of_job=of_job)
    if of_job:
        check_host(url.host)
        if len(pairs) != len(url.query):
            raise ConfigurationError("an option of the URL stands there twice")


def open_engine(
    url: sa.URL,
    limits: JobLimits | None,
    arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> sa.Engine:
    """Connections to PostgreSQL, MySQL or MariaDB; nothing is connected yet."""
    check_server(url, of_job=limits is not None)
    is_postgres = _scheme(url) in POSTGRESQL
    driver = "psycopg" if is_postgres else "pymysql"
    importlib.import_module(driver)
    forced = dict(arguments or {})
    if "connect_timeout" not in url.query:
        forced["connect_timeout"] = CONNECT_SECONDS
    if not is_postgres:
        forced |= {"local_infile": False}
        if limits is not None and "read_timeout" not in {*url.query, *forced}:
            forced["read_timeout"] = SILENT_SECONDS
    name = f"{'postgresql' if is_postgres else 'mysql'}+{driver}"
    engine = sa.create_engine(url.set(drivername=name), connect_args=forced, **options)
    if limits is not None:
        _connect_by(engine, _postgresql if is_postgres else _mysql, limits.hosts)
    return engine


def _connect_by(engine: sa.Engine, connect: Callable[..., Any], rules: HostRules) -> None:
    """Every connection of the engine is made by `connect`, to an address that `rules` allow."""

    def connected(
        dialect: Any, _record: object, given: tuple[Any, ...], arguments: dict[str, Any]
    ) -> Any:
        return connect(rules, dialect, given, arguments)

    sa.event.listen(engine, "do_connect", connected)


def brief(error: DBAPIError) -> str:
    """The type of a driver's error and its number; nothing that the server said."""
    inner = error.orig or error
    first = next(iter(getattr(inner, "args", ())), None)
    code = getattr(inner, "sqlstate", None) or (first if isinstance(first, int) else None)
    return f"{type(inner).__name__}{f' ({code})' if code else ''}"


def _scheme(url: sa.URL) -> str:
    return url.drivername.partition("+")[0]


def _postgresql(
    rules: HostRules, dialect: Any, given: tuple[Any, ...], arguments: dict[str, Any]
) -> Any:
    host, port = arguments["host"], int(arguments.get("port") or _PORTS["postgresql"])
    addresses = rules.addresses(host, port)
    # The name stays for TLS; libpq connects to the addresses and does not resolve it again.
    target = {"host": ",".join([host] * len(addresses)), "hostaddr": ",".join(addresses)}
    chosen = {**_no_environment(), "password": "", **_NO_FILES, "port": port, **arguments, **target}
    return dialect.connect(*given, **chosen)


def _no_environment() -> dict[str, str]:
    """libpq takes whatever is not said from variables (PGPASSWORD, PGUSER): so all is said."""
    from psycopg import pq

    known = [(each.keyword, each.envvar, each.compiled) for each in pq.Conninfo.get_defaults()]
    return {
        keyword.decode(): (compiled or b"").decode()
        for keyword, variable, compiled in known
        if variable and variable.decode() in os.environ and keyword != b"service"
    }


def _mysql(
    rules: HostRules, dialect: Any, given: tuple[Any, ...], arguments: dict[str, Any]
) -> Any:
    host, port = arguments["host"], int(arguments.get("port") or _PORTS["mysql"])
    seconds = float(arguments.get("connect_timeout") or CONNECT_SECONDS)
    made = dialect.connect(*given, **arguments, defer_connect=True)
    try:
        connected = rules.connect(host, port, seconds)
    except OSError as error:
        raise dialect.loaded_dbapi.OperationalError(_CANNOT_CONNECT, str(error)) from error
    made.connect(connected)
    return made
