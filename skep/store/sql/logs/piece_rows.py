"""Rows of log pieces: how a piece becomes one, and which a selection takes. Pure.

Run by centers only. Conditions name columns and values, never text from outside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.logs import LogSource, LogSourceKind
from skep.store.ports.logs import NewPiece, PieceFacts, PieceSelection, PiecesInside
from skep.store.sql.filters.inside import of_named_runs_inside
from skep.store.sql.schema.logs import log_pieces

_OF_SOURCE = frozenset({"source", "kind", "name", "run", "agent", "replaced", "replaced_at"})
_PLAIN = tuple(column.name for column in log_pieces.c if column.name not in _OF_SOURCE)
FACTS = [log_pieces.c[name] for name in ("kind", "name", "run", "agent", *_PLAIN)]
COLUMNS = ("source", "kind", "name", "run", "agent", *_PLAIN)
_GIVEN = tuple(
    name for name in _PLAIN if name not in {"id", "stored", "first_arrived", "last_arrived", "at"}
)


def digest_of(source: LogSource) -> bytes:
    """The key of a source."""
    return hashlib.blake2b(msgspec.json.encode(source), digest_size=16).digest()


def stored_bytes(piece: NewPiece) -> int:
    return len(piece.body) + len(piece.summary)


def row_of(
    number: int, piece: NewPiece, arrived: tuple[int, int], now: float
) -> tuple[object, ...]:
    """The values of `COLUMNS`."""
    source = piece.source
    values = {name: getattr(piece, name) for name in _GIVEN}
    values |= {"id": number, "stored": stored_bytes(piece), "at": now}
    values |= {"first_arrived": arrived[0], "last_arrived": arrived[1]}
    names = (digest_of(source), str(source.kind), source.name, source.run, source.agent)
    return (*names, *(values[name] for name in _PLAIN))


def facts_of(row: Any) -> PieceFacts:
    """From the columns `FACTS`."""
    kind, name, run, agent, *rest = row
    values = dict(zip(_PLAIN, rest, strict=True))
    values["summary"] = bytes(values["summary"])
    return PieceFacts(source=LogSource(LogSourceKind(kind), name, run, agent), **values)


def visible_at(moment: int) -> sa.ColumnElement[bool]:
    """Pieces that a reader of this moment sees."""
    replaced = log_pieces.c.replaced
    return sa.and_(log_pieces.c.id <= moment, sa.or_(replaced.is_(None), replaced > moment))


def selected(selection: PieceSelection, engine: str) -> Iterator[sa.ColumnElement[bool]]:
    """The conditions of a selection."""
    if selection.inside is not None:
        yield _inside(selection.inside, engine)
    for column, wanted in (
        (log_pieces.c.kind, [str(kind) for kind in selection.kinds]),
        (log_pieces.c.name, selection.names),
        (log_pieces.c.run, selection.runs),
        (log_pieces.c.agent, selection.agents),
    ):
        if wanted:
            yield column.in_(list(wanted))
    if selection.levels:
        yield log_pieces.c.levels.bitwise_and(selection.levels) != 0
    if selection.since is not None:
        yield log_pieces.c.latest >= selection.since
    if selection.until is not None:
        yield log_pieces.c.earliest <= selection.until


def _inside(inside: PiecesInside, engine: str) -> sa.ColumnElement[bool]:
    run, agent = log_pieces.c.run, log_pieces.c.agent
    of_agent = sa.and_(run == "", agent.in_(inside.agents), agent != "")
    return sa.or_(*of_named_runs_inside(run, inside.scope, engine), of_agent)
