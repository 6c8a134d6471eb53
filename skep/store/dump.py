"""Dumps the whole store into one file, and loads it: by URL, while centers use it. Blocking.

SQLite uses its online backup; PostgreSQL and MariaDB are dumped and loaded by their own
programs, which must be installed. Passwords are passed by the environment, never by arguments.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from skep.errors import ConfigurationError, StoreDown

if TYPE_CHECKING:
    import sqlalchemy as sa

#: Kind of store: the file name of its dump.
FILES = {"sqlite": "store.db", "postgresql": "store.pgdump", "mysql": "store.sql"}
_NAMES = {"postgres": "postgresql", "mariadb": "mysql"}


def kind_of(url: str) -> str:
    """sqlite, postgresql or mysql; raises ConfigurationError for anything else."""
    scheme = url.partition(":")[0].partition("+")[0]
    kind = _NAMES.get(scheme, scheme)
    if kind not in FILES:
        raise ConfigurationError(f"store.url: a store of kind {scheme!r} cannot be backed up")
    return kind


def sqlite_path(url: str) -> Path:
    """The file of an SQLite store; raises ConfigurationError for one in memory."""
    path = url.partition(":///")[2].partition("?")[0]
    if not path or path == ":memory:":
        raise ConfigurationError("a store in memory cannot be backed up; use a store on disk")
    return Path(path)


def dump(url: str, target: Path) -> None:
    """Write a consistent copy of all committed data; raises StoreDown."""
    kind = kind_of(url)
    if kind == "sqlite":
        _copy_sqlite(sqlite_path(url), target)
        return
    if kind == "postgresql":
        words, env = _postgres("pg_dump", url, "--format=custom", f"--file={target}")
    else:
        options = ("--single-transaction", "--no-tablespaces", "--hex-blob", "--skip-comments")
        words, env = _mysql("mariadb-dump", url, *options, f"--result-file={target}")
    _run(words, env, None)


def load(url: str, source: Path) -> None:
    """Load into an empty database; raises ConfigurationError if it is not empty, and StoreDown."""
    kind = kind_of(url)
    check_empty(url)
    if kind == "sqlite":
        # Nothing is written next to the backup, which may be on a read-only disk.
        _copy_sqlite(source, sqlite_path(url), "immutable=1")
    elif kind == "postgresql":
        options = ("--no-owner", "--exit-on-error", "--single-transaction", str(source))
        words, env = _postgres("pg_restore", url, *options)
        _run(words, env, None)
    else:
        words, env = _mysql("mariadb", url)
        _run(words, env, source)


def check_empty(url: str) -> None:
    """Raises ConfigurationError for a store that has tables."""
    import sqlalchemy as sa

    from skep.store.sql.engine.dialect import dialect_for

    if kind_of(url) == "sqlite" and not sqlite_path(url).exists():
        return
    made = sa.make_url(url)
    engine = dialect_for(made).engine(made)
    try:
        tables = sa.inspect(engine).get_table_names()
    except sa.exc.DBAPIError as error:
        raise StoreDown(f"the store does not answer: {error.orig}") from error
    finally:
        engine.dispose()
    if tables:
        shown = made.render_as_string(hide_password=True)
        raise ConfigurationError(f"{shown} is not empty; restore into an empty database")


def schema_of(url: str) -> str:
    """The schema version of a store; "" when it has none."""
    import sqlalchemy as sa

    from skep.store.sql.engine.dialect import dialect_for

    made = sa.make_url(url)
    engine = dialect_for(made).engine(made)
    try:
        with engine.connect() as connection:
            query = sa.text("SELECT version_num FROM alembic_version")
            return str(connection.execute(query).scalar() or "")
    except sa.exc.DBAPIError as error:
        raise StoreDown(f"the store cannot be read: {error.orig}") from error
    finally:
        engine.dispose()


def _copy_sqlite(source: Path, target: Path, how: str = "mode=ro") -> None:
    """Copies in one step: others may write meanwhile, and the copy does not include that."""
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?{how}", uri=True)) as before,
            closing(sqlite3.connect(target)) as after,
        ):
            target.chmod(0o600)
            before.backup(after, pages=-1)
    except sqlite3.Error as error:
        raise StoreDown(f"cannot copy {source} to {target}: {error}") from error


def _postgres(program: str, url: str, *options: str) -> tuple[list[str], dict[str, str]]:
    made = _made(url).set(drivername="postgresql")
    password = {"PGPASSWORD": str(made.password)} if made.password else {}
    plain = made._replace(password=None).render_as_string(hide_password=False)
    return [_program(program, "postgresql-client"), f"--dbname={plain}", *options], password


def _mysql(program: str, url: str, *options: str) -> tuple[list[str], dict[str, str]]:
    made = _made(url)
    place = [f"--host={made.host or '127.0.0.1'}", f"--port={made.port or 3306}"]
    place += ["--protocol=TCP", f"--user={made.username or 'root'}"]
    password = {"MYSQL_PWD": str(made.password)} if made.password else {}
    found = _program(program, "mariadb-client")
    return [found, "--no-defaults", *place, *options, str(made.database)], password


def _made(url: str) -> sa.URL:
    import sqlalchemy as sa

    return sa.make_url(url)


def _program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ConfigurationError(f"{name} is not installed; install it (on Debian: {package})")
    return found


def _run(words: list[str], env: dict[str, str], source: Path | None) -> None:
    given = source.open("rb") if source is not None else subprocess.DEVNULL
    try:
        done = subprocess.run(  # noqa: S603 - no user input
            words, stdin=given, capture_output=True, env={**os.environ, **env}, check=False
        )
    finally:
        if source is not None and not isinstance(given, int):
            given.close()
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it printed no error"]
        raise StoreDown(f"{Path(words[0]).name} failed: {said[0]}")


def committed_segments(url: str) -> dict[str, int]:
    """Committed length of each archive segment that was not deleted."""
    import sqlalchemy as sa

    from skep.store.sql.engine.dialect import dialect_for

    made = sa.make_url(url)
    engine = dialect_for(made).engine(made)
    query = sa.text("SELECT name, committed FROM segments WHERE gone IS NULL")
    try:
        with engine.connect() as connection:
            return {str(name): int(end) for name, end in connection.execute(query)}
    except sa.exc.DBAPIError as error:
        raise StoreDown(f"the store cannot be read: {error.orig}") from error
    finally:
        engine.dispose()
