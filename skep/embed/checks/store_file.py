"""What `skep doctor` says about an SQLite store on this machine. It opens it for reading only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from skep.embed.checks.finding import Finding
from skep.settings import Settings

#: A larger file is not read whole: that would take minutes.
WHOLE_BYTES = 256 * 2**20
FIX = "stop the center and restore a backup (`skep restore`); keep the damaged file"


def store_file(settings: Settings) -> Iterator[Finding]:
    """Nothing when the store is elsewhere, or was not made yet."""
    url = settings.store_url
    path = Path(url.partition("sqlite:///")[2].partition("?")[0])
    if not url.startswith("sqlite:///") or not path.is_file() or not path.stat().st_size:
        return
    damage = damage_of(path)
    yield Finding("store", not damage, f"{path} is damaged: {damage}" if damage else str(path), FIX)


def damage_of(path: Path) -> str:
    """What SQLite finds wrong with a file; "" when nothing is."""
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
