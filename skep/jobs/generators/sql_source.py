"""A query as a generator: read-only, in batches, in a separate thread. Centers only.

A document must not contain the URL of a database with a password: `env:NAME` names a variable of
the center's environment that contains the URL. No error shows it, and none shows the message of
a server, only its type and number.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from skep.errors import ConfigurationError, InvalidInput, SkepError
from skep.jobs.definitions.jobs_folder import inside
from skep.jobs.generators.generator_contract import BATCH, TIME_LIMIT, Batches, GeneratorFailed, Raw
from skep.model.jobs.job import Generator
from skep.model.request import NewRequest
from skep.runtime.clock import Clock
from skep.streams.host_rules import JobLimits
from skep.streams.sql.connections import brief, check_server, open_engine

REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
#: Prefix of variables with the center's own settings and tokens.
OWN = "SKEP_"
SCHEMES = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")
_READS = re.compile(
    r"\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*(select|with|values|table)\b",
    re.IGNORECASE | re.DOTALL,
)
_FIELDS = frozenset(NewRequest.__struct_fields__)


def check_sql(generator: Generator) -> None:
    """Checks that need no database; raises InvalidInput."""
    if not _READS.match(generator.query):
        raise InvalidInput("query: must begin with SELECT, WITH, VALUES or TABLE")
    found = REFERENCE.fullmatch(generator.url)
    if found is None:
        _parsed(generator.url)
    elif found[1].startswith(OWN):
        raise InvalidInput(f"url: variables that begin with {OWN} are reserved for the center")


def _parsed(text: str) -> sa.URL:
    try:
        url = sa.make_url(text)
    except SQLAlchemyError:
        raise InvalidInput("url: is not the URL of a database, nor env:NAME") from None
    if url.drivername not in SCHEMES:
        raise InvalidInput(f"url: {url.drivername!r} is not supported; use {', '.join(SCHEMES)}")
    if url.password:
        raise InvalidInput(
            "url: must not contain a password; put the URL into a variable of the "
            "center's environment and write env:NAME"
        )
    try:
        _check_server(url)
    except ConfigurationError as error:
        raise InvalidInput(f"url: {error.detail}") from None
    return url


def _check_server(url: sa.URL) -> None:
    """Raises ConfigurationError for options that a job must not use."""
    if url.drivername != "sqlite":
        check_server(url, of_job=True)
    elif url.query:
        raise ConfigurationError("the URL of an SQLite file takes no options; remove them")


class SqlSource:
    """Rows of one query. `folder` contains the SQLite files."""

    def __init__(
        self,
        generator: Generator,
        folder: Path,
        environment: Mapping[str, str],
        limits: JobLimits,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._generator = generator
        self._folder = folder
        self._environment = environment
        self._seconds = generator.limits.time or TIME_LIMIT
        #: Cancels an active query, from another thread.
        self._cancel: Callable[[], object] | None = None
        self._interrupt = threading.Event()

    async def batches(self) -> Batches:
        """Raises GeneratorFailed."""
        # One thread: SQLite connections must stay in the thread that opened them.
        thread = ThreadPoolExecutor(1, thread_name_prefix="generator-sql")
        rows = self._rows()
        deadline = self._clock.monotonic() + self._seconds
        try:
            while batch := await self._fetched(thread, rows, deadline):
                yield batch
        finally:
            # Not awaited: a query that hangs ends with its own time limit.
            self._interrupt.set()
            thread.submit(rows.close)
            if self._cancel is not None:
                asyncio.get_running_loop().run_in_executor(None, self._cancel)
            thread.shutdown(wait=False)

    async def _fetched(self, thread: ThreadPoolExecutor, rows: Any, deadline: float) -> list[Raw]:
        asked = asyncio.get_running_loop().run_in_executor(thread, _next, rows)
        try:
            async with asyncio.timeout(max(deadline - self._clock.monotonic(), 0.0)):
                return await asked
        except TimeoutError:
            raise GeneratorFailed(f"it took longer than its {self._seconds:g} s") from None
        except GeneratorFailed:
            raise
        except SkepError as error:
            raise GeneratorFailed(error.detail) from None
        except Exception as error:  # noqa: BLE001 - drivers raise anything for invalid answers
            raise GeneratorFailed(f"the query failed: {_told(error)}") from None

    def _rows(self) -> Any:
        engine = self._opened()
        try:
            with engine.connect() as connection:
                self._read_only(connection)
                self._cancel = getattr(connection.connection.driver_connection, "cancel", None)
                streaming = connection.execution_options(stream_results=True, max_row_buffer=BATCH)
                result = streaming.exec_driver_sql(self._generator.query)
                columns = list(result.keys())
                while found := result.fetchmany(BATCH):
                    yield [_request(columns, row) for row in found]
        finally:
            engine.dispose()

    def _opened(self) -> sa.Engine:
        url = self._url()
        if url.drivername == "sqlite":
            return self._sqlite(url)
        arguments: dict[str, Any] = {}
        if url.drivername in {"mysql", "mariadb"}:
            arguments = {"read_timeout": int(self._seconds) + 1, "charset": "utf8mb4"}
        return open_engine(url, self._limits, arguments, poolclass=sa.pool.NullPool)

    def _url(self) -> sa.URL:
        found = REFERENCE.fullmatch(self._generator.url)
        if found is None:
            return _parsed(self._generator.url)
        text = "" if found[1].startswith(OWN) else self._environment.get(found[1], "")
        if not text:
            raise GeneratorFailed(f"the center's environment has no variable {found[1]}; set it")
        try:
            url = sa.make_url(text)
        except SQLAlchemyError:
            raise GeneratorFailed(f"{found[1]} does not contain the URL of a database") from None
        if url.drivername.partition("+")[0] not in SCHEMES:
            raise GeneratorFailed(f"{found[1]} is not supported; use {', '.join(SCHEMES)}")
        plain = url.set(drivername=url.drivername.partition("+")[0])
        try:
            _check_server(plain)
        except ConfigurationError as error:
            raise GeneratorFailed(f"{found[1]}: {error.detail}") from None
        return plain

    def _sqlite(self, url: sa.URL) -> sa.Engine:
        """A file in the folder for jobs, opened read-only."""
        import sqlite3

        try:
            path = inside(self._folder, url.database or "")
        except ValueError as error:
            raise GeneratorFailed(str(error)) from None
        if not path.is_file():
            raise GeneratorFailed(f"there is no file {url.database!r} in the folder for jobs")

        def connect() -> sqlite3.Connection:
            made = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=10)
            made.set_authorizer(_reads_only)
            made.set_progress_handler(self._interrupt.is_set, 10_000)
            return made

        return sa.create_engine("sqlite://", creator=connect, poolclass=sa.pool.NullPool)

    def _read_only(self, connection: sa.Connection) -> None:
        name, limit = connection.dialect.name, int(self._seconds * 1000)
        if name == "postgresql":
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {limit}")
        elif name == "mysql":
            connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
            connection.exec_driver_sql("START TRANSACTION READ ONLY")


def _next(rows: Any) -> list[Raw]:
    found: list[Raw] = next(rows, [])
    return found


def _reads_only(action: int, *_: object) -> int:
    """Denies ATTACH, so that a query cannot open other files."""
    import sqlite3

    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def _request(columns: Sequence[str], row: Sequence[Any]) -> Raw:
    """The URI is the column `uri`, or the first; other columns are fields of the request or its
    meta."""
    fields = dict(zip(columns, row, strict=True))
    name = "uri" if "uri" in fields else columns[0]
    uri = fields.pop(name)
    if not fields:
        return str(uri)
    request: dict[str, Any] = {"uri": str(uri)}
    meta: dict[str, Any] = {}
    for column, value in fields.items():
        if value is None:
            continue
        if column in _FIELDS:
            request[column] = _plain(value, body=column == "body")
        else:
            meta[column] = _plain(value)
    return {**request, "meta": {**meta, **request.get("meta", {})}} if meta else request


def _plain(value: Any, *, body: bool = False) -> Any:
    """The value as JSON data; decimals and times become text."""
    if body:
        return value.encode() if isinstance(value, str) else bytes(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str | int | float | bool | dict | list) else str(value)


def _told(error: BaseException) -> str:
    """The first line of an SQLite error; of a server's error only its type and number."""
    import sqlite3

    inner = getattr(error, "orig", None)
    if isinstance(inner, sqlite3.Error):
        return str(inner).strip().partition("\n")[0][:500]
    return brief(error) if isinstance(error, DBAPIError) else type(error).__name__
