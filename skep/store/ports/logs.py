"""What centers ask of a store about log pieces; the rules of `store/ports` hold.

A piece holds consecutive lines of one source under one token, compressed. Its facts are a row,
its body is opaque to the store. Small pieces are replaced by larger ones later; a reader names a
moment and sees the pieces of that moment, whatever is replaced meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from skep.model.logs import LogSource, LogSourceKind
from skep.model.people.scope import Scope


class SourceProgress(Struct, frozen=True):
    """How far the lines of a source are stored."""

    token: int = 0
    #: The offset that the next line has at least.
    next: int = 0
    #: Time of the last line: times of one source never go back.
    time: float = 0.0


class NewPiece(Struct, frozen=True, kw_only=True):
    """A piece that is about to be stored."""

    source: LogSource
    token: int
    #: Offsets of the first and of the last line; there may be gaps in between.
    first: int
    last: int
    #: The offset that the source is to be at; a piece with only a gap behind it moves it too.
    next: int
    count: int
    #: Bytes of the lines before compression.
    size: int
    #: One bit per level, as `model.logs.level_bit` says.
    levels: int
    earliest: float
    latest: float
    #: 0 for lines as they arrived; a piece of the highest tier is not merged again.
    tier: int
    #: What a search asks before it opens the body; empty when nothing is known.
    summary: bytes
    body: bytes


class PieceFacts(Struct, frozen=True, kw_only=True):
    """The row of a stored piece, without its body."""

    #: Numbers grow in the order of commits: once a reader has seen one, no smaller one appears.
    id: int
    source: LogSource
    token: int
    first: int
    last: int
    count: int
    size: int
    #: Bytes of the body and of the summary.
    stored: int
    levels: int
    earliest: float
    latest: float
    tier: int
    #: The ids under which the first and the last of its lines arrived; its own for tier 0.
    first_arrived: int
    last_arrived: int
    #: When it was stored, on the center's clock.
    at: float
    summary: bytes


class PiecesInside(Struct, frozen=True):
    """What a caller with a scope may read: lines of runs inside it, and lines of these agents that
    belong to no run. Never lines of centers."""

    scope: Scope
    agents: tuple[str, ...] = ()


class PieceSelection(Struct, frozen=True):
    """Which pieces; an empty tuple, 0 and None select all."""

    kinds: tuple[LogSourceKind, ...] = ()
    names: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    #: Pieces with one of these level bits.
    levels: int = 0
    #: Pieces with lines at or after, and at or before.
    since: float | None = None
    until: float | None = None
    inside: PiecesInside | None = None


#: A place in the order of pieces by age: the time of the newest line, and the id of the piece.
PieceMark = tuple[float, int]


class MergeRule(Struct, frozen=True):
    """When the pieces of one source and token below the highest tier are to be merged."""

    #: Pieces below this tier.
    tier: int
    #: Pieces of one tier.
    count: int
    #: Bytes of all of them before compression.
    size: int
    #: Stored before this time, at least one of them.
    before: float


class StoredBytes(Struct, frozen=True):
    """How much of the logs of one agent is stored; `agent` is empty for lines of centers."""

    agent: str
    pieces: int
    bytes: int


class LogPieces(Protocol):
    """Asked by `logs`."""

    async def progress(self, sources: Sequence[LogSource]) -> list[SourceProgress]:
        """In the same order; zeros for a source that is not known."""

    async def add(self, pieces: Sequence[NewPiece], now: float) -> list[SourceProgress | None]:
        """Store pieces of tier 0, at most one of each source, in one transaction. The answer is
        None for a piece that was stored. A piece is refused when its token is older than that
        of its source, or its token is the same and its first offset is below the source's next:
        then the answer is the progress that stands against it."""

    async def replace(self, ids: Sequence[int], piece: NewPiece, now: float) -> bool:
        """Put one piece in the place of several of the same source and token. False, and nothing
        changes, when one of them is gone or replaced already. Readers of an earlier moment still
        find the old ones until `purge`."""

    async def purge(self, before: float) -> int:
        """Delete pieces that were replaced before that time; how many."""

    async def moment(self) -> int:
        """The highest id so far: what a reader that starts now sees."""

    async def newest(
        self, selection: PieceSelection, moment: int, after: PieceMark | None, limit: int
    ) -> list[PieceFacts]:
        """By (latest, id), highest first, below `after`."""

    async def covering(
        self, source: LogSource, token: int, first: int, last: int, moment: int
    ) -> list[PieceFacts]:
        """Pieces with lines from `first` to `last`, in the order of their offsets."""

    async def arrived(
        self, selection: PieceSelection, after: int, until: int, moment: int
    ) -> list[PieceFacts]:
        """Pieces with a line that arrived under an id above `after` and not above `until`."""

    async def mergeable(self, rule: MergeRule, limit: int) -> list[list[PieceFacts]]:
        """Up to `limit` groups: all pieces below the tier of a source and token for which one
        condition of the rule holds, in the order of their offsets."""

    async def bodies(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Without those that are gone."""

    async def stored(self) -> list[StoredBytes]:
        """Sums per agent, maintained with every change; replaced pieces count until `purge`."""

    async def delete_oldest(self, agent: str | None, surplus: int, before: float) -> int:
        """Delete pieces of an agent (None: of all), lowest `latest` first, until `surplus` bytes
        are freed, and every piece whose latest line is before that time; bytes freed."""
