"""Log pieces in a separate SQLite file: for tests and benchmarks of `logs`.

It implements the whole contract `store.ports.logs.LogPieces`, durably (WAL, synchronous FULL), and
shows the tables, indexes and statements that a store needs for it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

from skep.errors import StoreDown
from skep.model.logs import LogSource, LogSourceKind
from skep.store.ports.logs import (
    MergeRule,
    NewPiece,
    PieceFacts,
    PieceMark,
    PieceSelection,
    SourceProgress,
    StoredBytes,
)

_TABLES = """
create table if not exists log_pieces (
  id integer primary key autoincrement, kind text, name text, run text, agent text,
  token int, first int, last int, count int, size int, stored int, levels int,
  earliest real, latest real, tier int, first_arrived int, last_arrived int, at real,
  summary blob, replaced int, replaced_at real);
create index if not exists log_pieces_time on log_pieces (latest, id);
create index if not exists log_pieces_source on log_pieces (kind, name, run, agent, token, first);
create index if not exists log_pieces_small on log_pieces (tier) where replaced is null;
create index if not exists log_pieces_arrived on log_pieces (last_arrived);
create index if not exists log_pieces_replaced on log_pieces (replaced_at)
  where replaced_at is not null;
create table if not exists log_bodies (id integer primary key, body blob);
create table if not exists log_sources (
  kind text, name text, run text, agent text, token int, next int, time real,
  primary key (kind, name, run, agent)) without rowid;
create table if not exists log_sums (agent text primary key, pieces int, bytes int) without rowid;
"""
_FACTS = (
    "id, kind, name, run, agent, token, first, last, count, size, stored, levels, earliest,"
    " latest, tier, first_arrived, last_arrived, at, summary"
)
_SOURCE = "kind = ? and name = ? and run = ? and agent = ?"
_VISIBLE = "id <= ? and (replaced is null or replaced > ?)"
_FILTERS = {"kinds": "kind", "names": "name", "runs": "run", "agents": "agent"}

T = TypeVar("T")


class SqliteLogPieces:
    """`path` may be `:memory:`. Call `close` at the end."""

    def __init__(self, path: str) -> None:
        self._lock = Lock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.executescript(_TABLES)

    def close(self) -> None:
        self._db.close()

    async def _call(self, act: Callable[[], T]) -> T:
        return await asyncio.to_thread(self._locked, act)

    def _locked(self, act: Callable[[], T]) -> T:
        with self._lock:
            return act()

    def _rows(self, statement: str, *values: object) -> list[Any]:
        return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    async def progress(self, sources: Sequence[LogSource]) -> list[SourceProgress]:
        return await self._call(lambda: [self._progress(source) for source in sources])

    def _progress(self, source: LogSource) -> SourceProgress:
        statement = f"select token, next, time from log_sources where {_SOURCE}"
        rows = self._rows(statement, *_key(source))
        return SourceProgress(*rows[0]) if rows else SourceProgress()

    async def add(self, pieces: Sequence[NewPiece], now: float) -> list[SourceProgress | None]:
        return await self._call(lambda: self._add_all(pieces, now))

    def _add_all(self, pieces: Sequence[NewPiece], now: float) -> list[SourceProgress | None]:
        with self._transaction():
            return [self._add(piece, now) for piece in pieces]

    def _add(self, piece: NewPiece, now: float) -> SourceProgress | None:
        known = self._progress(piece.source)
        if (piece.token, piece.first) < (known.token, known.next):
            return known
        self._insert(piece, None, now)
        self._db.execute(
            "insert or replace into log_sources values (?, ?, ?, ?, ?, ?, ?)",
            (*_key(piece.source), piece.token, piece.next, piece.latest),
        )
        return None

    def _insert(self, piece: NewPiece, arrived: tuple[int, int] | None, now: float) -> int:
        stored = len(piece.body) + len(piece.summary)
        row = self._db.execute(
            f"insert into log_pieces ({_FACTS[4:]}) values ({', '.join('?' * 18)})",
            (
                *_key(piece.source), piece.token, piece.first, piece.last, piece.count, piece.size,
                stored, piece.levels, piece.earliest, piece.latest, piece.tier,
                *(arrived or (0, 0)), now, piece.summary,
            ),
        )  # fmt: skip
        number = int(row.lastrowid or 0)
        if arrived is None:
            statement = "update log_pieces set first_arrived = id, last_arrived = id where id = ?"
            self._db.execute(statement, (number,))
        self._db.execute("insert into log_bodies values (?, ?)", (number, piece.body))
        self._sum(piece.source.agent, 1, stored)
        return number

    def _sum(self, agent: str, pieces: int, size: int) -> None:
        self._db.execute(
            "insert into log_sums values (?, ?, ?) on conflict (agent) do update"
            " set pieces = pieces + excluded.pieces, bytes = bytes + excluded.bytes",
            (agent, pieces, size),
        )

    async def replace(self, ids: Sequence[int], piece: NewPiece, now: float) -> bool:
        return await self._call(lambda: self._replace(ids, piece, now))

    def _replace(self, ids: Sequence[int], piece: NewPiece, now: float) -> bool:
        with self._transaction():
            marks = ", ".join("?" * len(ids))
            (count, first, last) = self._rows(
                "select count(*), min(first_arrived), max(last_arrived) from log_pieces"
                f" where id in ({marks}) and replaced is null",
                *ids,
            )[0]
            if count < len(ids):
                return False
            number = self._insert(piece, (first, last), now)
            self._db.execute(
                f"update log_pieces set replaced = ?, replaced_at = ? where id in ({marks})",
                (number, now, *ids),
            )
            return True

    async def purge(self, before: float) -> int:
        return await self._call(lambda: self._delete("replaced_at < ?", before)[0])

    def _delete(self, where: str, *values: object) -> tuple[int, int]:
        """Delete pieces; returns (pieces, bytes)."""
        with self._transaction():
            rows = self._rows(f"select id, agent, stored from log_pieces where {where}", *values)
            for number, agent, stored in rows:
                self._db.execute("delete from log_pieces where id = ?", (number,))
                self._db.execute("delete from log_bodies where id = ?", (number,))
                self._sum(agent, -1, -stored)
            return len(rows), sum(stored for _, _, stored in rows)

    async def moment(self) -> int:
        return await self._call(self._moment)

    def _moment(self) -> int:
        rows = self._rows("select seq from sqlite_sequence where name = 'log_pieces'")
        return int(rows[0][0]) if rows else 0

    async def newest(
        self, selection: PieceSelection, moment: int, after: PieceMark | None, limit: int
    ) -> list[PieceFacts]:
        where, values = _where(selection)
        if after is not None:
            where, values = f"{where} and (latest, id) < (?, ?)", [*values, *after]
        tail = "order by latest desc, id desc limit ?"
        return await self._facts(f"{_VISIBLE}{where} {tail}", moment, moment, *values, limit)

    async def _facts(self, where: str, *values: object) -> list[PieceFacts]:
        statement = f"select {_FACTS} from log_pieces where {where}"
        return await self._call(lambda: list(map(_fact, self._rows(statement, *values))))

    async def covering(
        self, source: LogSource, token: int, first: int, last: int, moment: int
    ) -> list[PieceFacts]:
        where = (
            f"{_VISIBLE} and {_SOURCE} and token = ? and last >= ? and first <= ? order by first"
        )
        return await self._facts(where, moment, moment, *_key(source), token, first, last)

    async def arrived(
        self, selection: PieceSelection, after: int, until: int, moment: int
    ) -> list[PieceFacts]:
        where, values = _where(selection)
        where = f"{_VISIBLE}{where} and last_arrived > ? and first_arrived <= ? order by id"
        return await self._facts(where, moment, moment, *values, after, until)

    async def mergeable(self, rule: MergeRule, limit: int) -> list[list[PieceFacts]]:
        source = "kind, name, run, agent, token"
        small = "from log_pieces where replaced is null and tier < ?"
        statement = (
            f"select {source} from (select {source}, count(*) n, sum(size) s, min(at) a {small}"
            f" group by {source}, tier) group by {source}"
            " having max(n) >= ? or sum(s) >= ? or min(a) < ? limit ?"
        )
        values = rule.tier, rule.count, rule.size, rule.before, limit
        groups = await self._call(lambda: self._rows(statement, *values))
        where = f"replaced is null and tier < ? and {_SOURCE} and token = ? order by first"
        return [await self._facts(where, rule.tier, *group) for group in groups]

    async def bodies(self, ids: Sequence[int]) -> dict[int, bytes]:
        statement = f"select id, body from log_bodies where id in ({', '.join('?' * len(ids))})"
        return await self._call(lambda: dict(self._rows(statement, *ids)))

    async def stored(self) -> list[StoredBytes]:
        statement = "select agent, pieces, bytes from log_sums order by agent"
        return await self._call(lambda: [StoredBytes(*row) for row in self._rows(statement)])

    async def delete_oldest(self, agent: str | None, surplus: int, before: float) -> int:
        return await self._call(lambda: self._delete_oldest(agent, surplus, before))

    def _delete_oldest(self, agent: str | None, surplus: int, before: float) -> int:
        whose, values = ("agent = ?", [agent]) if agent is not None else ("1", [])
        freed, last = 0, (float("-inf"), 0)
        for latest, number, stored in self._db.execute(
            f"select latest, id, stored from log_pieces where {whose} order by latest, id", values
        ):
            if freed >= surplus and latest >= before:
                break
            freed, last = freed + stored, (latest, number)
        return self._delete(f"{whose} and (latest, id) <= (?, ?)", *values, *last)[1]


class SwitchedLogPieces(SqliteLogPieces):
    """A store that can be away, or whose answers can be lost after the commit."""

    away = False
    answers = True

    async def add(self, pieces: Sequence[NewPiece], now: float) -> list[SourceProgress | None]:
        if self.away:
            raise StoreDown("it is away")
        found = await super().add(pieces, now)
        if not self.answers:
            raise StoreDown("the connection broke during the commit")
        return found


def _key(source: LogSource) -> tuple[str, str, str, str]:
    return str(source.kind), source.name, source.run, source.agent


def _fact(row: tuple[Any, ...]) -> PieceFacts:
    number, kind, name, run, agent, *rest = row
    source = LogSource(LogSourceKind(kind), name, run, agent)
    columns = [column.strip() for column in _FACTS.split(",")][5:]
    return PieceFacts(id=number, source=source, **dict(zip(columns, rest, strict=True)))


def _where(selection: PieceSelection) -> tuple[str, list[object]]:
    if selection.inside is not None:
        raise NotImplementedError("this double knows no runs, so no scopes")
    parts: list[str] = []
    values: list[object] = []
    for field, column in _FILTERS.items():
        wanted = [str(value) for value in getattr(selection, field)]
        if wanted:
            parts.append(f"{column} in ({', '.join('?' * len(wanted))})")
            values += wanted
    if selection.levels:
        parts.append("levels & ? != 0")
        values.append(selection.levels)
    for bound, column, sign in (
        (selection.since, "latest", ">="),
        (selection.until, "earliest", "<="),
    ):
        if bound is not None:
            parts.append(f"{column} {sign} ?")
            values.append(bound)
    return "".join(f" and {part}" for part in parts), values
