"""Comparisons for logs: a plain append, `grep` over a plain file, and SQLite's FTS5."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figures import check, neat

_TRIGRAM = 3
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


@contextmanager
def appender(path: Path) -> Iterator[int]:
    file = os.open(path, _FLAGS)
    try:
        yield file
    finally:
        os.close(file)


def append_synced(path: Path, batches: Iterable[bytes]) -> None:
    """The minimum for durability: write, fsync, next."""
    with appender(path) as file:
        for batch in batches:
            os.write(file, batch + b"\n")
            os.fsync(file)


def grep(path: Path, words: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Seconds per word; the file is in the page cache, because it was just written."""
    found: dict[str, Any] = {"disk_mb": neat(path.stat().st_size / 1e6)}
    for word, times in words:
        begun = time.perf_counter()
        command = ["grep", "--count", "--fixed-strings", word, str(path)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
        )
        found[word] = neat(time.perf_counter() - begun)
        check(times, int(done.stdout), f"lines that grep found with {word}")
    return found


class Fts5:
    """FTS5 with its trigram tokenizer, the only built-in one that finds parts of words. It has no
    index for words of two characters and reads every row for them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.execute("create virtual table lines using fts5(text, tokenize = 'trigram')")
        self.seconds = 0.0
        self.lines = 0

    def add(self, texts: Sequence[str]) -> None:
        begun = time.perf_counter()
        self._db.execute("begin")
        self._db.executemany("insert into lines values (?)", [(text,) for text in texts])
        self._db.execute("commit")
        self.seconds += time.perf_counter() - begun
        self.lines += len(texts)

    def told(self, words: Sequence[str]) -> dict[str, Any]:
        """Seconds per word, bytes, and lines stored per second."""
        found: dict[str, Any] = {
            "lines": self.lines,
            "lines_per_second": neat(self.lines / self.seconds),
        }
        for word in words:
            begun = time.perf_counter()
            # A plus disables the index: with it, SQLite 3.40 finds nothing for two characters.
            column = "text" if len(word) >= _TRIGRAM else "+text"
            statement = f"select text from lines where {column} like ?"
            self._db.execute(statement, (f"%{word}%",)).fetchall()
            found[word] = neat(time.perf_counter() - begun)
        self._db.execute("pragma wal_checkpoint(truncate)")
        self._db.close()
        found["disk_mb"] = neat(self._path.stat().st_size / 1e6)
        return found
