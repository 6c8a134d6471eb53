"""`skep doctor`: an SQLite store on this machine. It is opened read-only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from skep.embed.checks.finding import Finding
from skep.settings import Settings

#: Maximum bytes of a file that is checked completely: more would take minutes.
WHOLE_BYTES = 256 * 2**20
FIX = "stop the center and restore a backup (`skep restore`); keep the damaged file"


def store_file(settings: Settings) -> Iterator[Finding]:
    """No finding when the store is on a server, or does not exist yet."""
    url = settings.store_url
    path = Path(url.partition("sqlite:///")[2].partition("?")[0])
    if not url.startswith("sqlite:///") or not path.is_file() or not path.stat().st_size:
        return
    damage = damage_of(path)
    yield Finding("store", not damage, f"{path} is damaged: {damage}" if damage else str(path), FIX)


def damage_of(path: Path) -> str:
    """The damage that SQLite finds in a file; "" = none."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if path.stat().st_size > WHOLE_BYTES:
                return ""
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        return str(error)
    return "" if found == "ok" else found.partition("\n")[0]
