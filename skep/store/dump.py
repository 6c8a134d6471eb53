"""The whole store as one file, and back: by URL, while centers use it. Blocking.

SQLite copies itself (online backup); PostgreSQL and MariaDB are dumped and loaded by their own
programs, which must be installed. Passwords go by the environment, never by arguments.
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

#: Kind of store: the file of its dump.
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
        raise ConfigurationError("a store in memory cannot be backed up")
    return Path(path)


def dump(url: str, target: Path) -> None:
    """A consistent copy of everything that was committed before; raises StoreDown."""
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
    """Into an empty database; raises ConfigurationError when it is not, and StoreDown."""
    kind = kind_of(url)
    check_empty(url)
    if kind == "sqlite":
        # Nothing is written beside the backup, which may be on a disk that is read-only.
        _copy_sqlite(source, sqlite_path(url), "immutable=1")
    elif kind == "postgresql":
        options = ("--no-owner", "--exit-on-error", "--single-transaction", str(source))
        words, env = _postgres("pg_restore", url, *options)
        _run(words, env, None)
    else:
        words, env = _mysql("mariadb", url)
        _run(words, env, source)


def check_empty(url: str) -> None:
    """Raises ConfigurationError for a store that holds tables already."""
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
    """In one step: while it runs others may write, and the copy does not see that."""
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?{how}", uri=True)) as before,
            closing(sqlite3.connect(target)) as after,
        ):
            target.chmod(0o600)
            before.backup(after, pages=-1)
    except sqlite3.Error as error:
        raise StoreDown(f"{source} cannot be copied to {target}: {error}") from error


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
        raise ConfigurationError(f"{name} is needed and not installed (on Debian: {package})")
    return found


def _run(words: list[str], env: dict[str, str], source: Path | None) -> None:
    given = source.open("rb") if source is not None else subprocess.DEVNULL
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            words, stdin=given, capture_output=True, env={**os.environ, **env}, check=False
        )
    finally:
        if source is not None and not isinstance(given, int):
            given.close()
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise StoreDown(f"{Path(words[0]).name} failed: {said[0]}")


def committed_segments(url: str) -> dict[str, int]:
    """How far each archive segment is committed, of those that were not deleted."""
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
