"""Conformance tests for stores of log pieces (`store.ports.logs.LogPieces`).

Subclass it and supply a fixture `log_pieces`, empty at the start of each test.
"""

from __future__ import annotations

import asyncio

from skep.model.logs import LogSource, LogSourceKind
from skep.store.ports.logs import (
    LogPieces,
    MergeRule,
    NewPiece,
    PieceFacts,
    PieceSelection,
    SourceProgress,
)

ALL = PieceSelection()
NOW = 1000.0


def source(name: str = "a", agent: str = "home", run: str = "r") -> LogSource:
    return LogSource(LogSourceKind.APP, name, run, agent)


def piece(
    first: int = 0,
    last: int = 9,
    *,
    of: LogSource | None = None,
    token: int = 1,
    tier: int = 0,
    latest: float = 10.0,
    levels: int = 4,
    size: int = 100,
) -> NewPiece:
    return NewPiece(
        source=of or source(),
        token=token,
        first=first,
        last=last,
        next=last + 1,
        count=last - first + 1,
        size=size,
        levels=levels,
        earliest=latest - 5,
        latest=latest,
        tier=tier,
        summary=b"summary",
        body=b"body %d" % first,
    )


async def visible(pieces: LogPieces, selection: PieceSelection = ALL) -> list[PieceFacts]:
    return await pieces.newest(selection, await pieces.moment(), None, 1000)


class LogPiecesConformance:
    """See the docstring of the module."""

    async def test_a_piece_comes_back_as_it_was_stored(self, log_pieces: LogPieces) -> None:
        assert await log_pieces.add([piece(3, 7)], NOW) == [None]
        (facts,) = await visible(log_pieces)
        assert (facts.source, facts.token, facts.first, facts.last) == (source(), 1, 3, 7)
        assert (facts.count, facts.size, facts.levels, facts.tier) == (5, 100, 4, 0)
        assert (facts.earliest, facts.latest, facts.at) == (5.0, 10.0, NOW)
        assert facts.first_arrived == facts.last_arrived == facts.id == await log_pieces.moment()
        assert facts.summary == b"summary"
        assert await log_pieces.bodies([facts.id, facts.id + 1]) == {facts.id: b"body 3"}

    async def test_progress(self, log_pieces: LogPieces) -> None:
        await log_pieces.add([piece(0, 4, latest=7.0)], NOW)
        found = await log_pieces.progress([source("b"), source()])
        assert found == [SourceProgress(), SourceProgress(1, 5, 7.0)]

    async def test_each_offset_once(self, log_pieces: LogPieces) -> None:
        known = SourceProgress(1, 10, 10.0)
        await log_pieces.add([piece(0, 9)], NOW)
        assert await log_pieces.add([piece(0, 9)], NOW) == [known]
        assert await log_pieces.add([piece(9, 20)], NOW) == [known]
        assert await log_pieces.add([piece(12, 20)], NOW) == [None]
        assert len(await visible(log_pieces)) == 2

    async def test_a_newer_token_begins_again_and_an_older_one_is_refused(
        self, log_pieces: LogPieces
    ) -> None:
        await log_pieces.add([piece(0, 9, token=5)], NOW)
        assert await log_pieces.add([piece(50, 60, token=4)], NOW) == [SourceProgress(5, 10, 10.0)]
        assert await log_pieces.add([piece(0, 3, token=6)], NOW) == [None]
        assert await log_pieces.progress([source()]) == [SourceProgress(6, 4, 10.0)]

    async def test_one_refused_piece_does_not_hold_up_the_others(
        self, log_pieces: LogPieces
    ) -> None:
        await log_pieces.add([piece()], NOW)
        answers = await log_pieces.add([piece(), piece(of=source("b"))], NOW)
        assert [answer is None for answer in answers] == [False, True]

    async def test_callers_at_once_store_an_offset_once(self, log_pieces: LogPieces) -> None:
        answers = await asyncio.gather(*(log_pieces.add([piece()], NOW) for _ in range(10)))
        assert [answer for (answer,) in answers].count(None) == 1

    async def test_newest_first_in_pages(self, log_pieces: LogPieces) -> None:
        for number, latest in enumerate([3.0, 1.0, 2.0, 2.0]):
            await log_pieces.add([piece(of=source(str(number)), latest=latest)], NOW)
        moment = await log_pieces.moment()
        first = await log_pieces.newest(ALL, moment, None, 2)
        after = first[-1].latest, first[-1].id
        rest = await log_pieces.newest(ALL, moment, after, 9)
        assert [facts.source.name for facts in [*first, *rest]] == ["0", "3", "2", "1"]

    async def test_selections(self, log_pieces: LogPieces) -> None:
        await log_pieces.add([piece(of=source("a", "home", "r1"), levels=4)], NOW)
        await log_pieces.add([piece(of=source("b", "work", "r2"), levels=24, latest=50.0)], NOW)

        async def names(selection: PieceSelection) -> list[str]:
            return [facts.source.name for facts in await visible(log_pieces, selection)]

        assert await names(PieceSelection(names=("a", "c"))) == ["a"]
        assert await names(PieceSelection(agents=("work",))) == ["b"]
        assert await names(PieceSelection(runs=("r1", "r2"))) == ["b", "a"]
        assert await names(PieceSelection(kinds=(LogSourceKind.AGENT,))) == []
        assert await names(PieceSelection(levels=16)) == ["b"]
        assert await names(PieceSelection(since=10.5)) == ["b"]
        assert await names(PieceSelection(until=44.9)) == ["a"]
        assert await names(PieceSelection(since=10.0, until=45.0)) == ["b", "a"]

    async def test_a_replaced_piece_is_seen_by_readers_of_before_until_it_is_purged(
        self, log_pieces: LogPieces
    ) -> None:
        await log_pieces.add([piece(0, 9)], NOW)
        await log_pieces.add([piece(10, 19)], NOW)
        before = await log_pieces.moment()
        small = await visible(log_pieces)
        ids = [facts.id for facts in reversed(small)]
        assert await log_pieces.replace(ids, piece(0, 19, tier=4), NOW + 1)
        assert await log_pieces.newest(ALL, before, None, 9) == small
        (large,) = await visible(log_pieces)
        assert (large.first, large.last, large.tier) == (0, 19, 4)
        assert (large.first_arrived, large.last_arrived) == (ids[0], ids[1])
        assert large.id > before
        assert await log_pieces.purge(NOW + 1) == 0
        assert await log_pieces.purge(NOW + 2) == 2
        assert set(await log_pieces.bodies([*ids, large.id])) == {large.id}
        assert await log_pieces.progress([source()]) == [SourceProgress(1, 20, 10.0)]

    async def test_a_piece_is_replaced_once(self, log_pieces: LogPieces) -> None:
        await log_pieces.add([piece(0, 9)], NOW)
        ids = [facts.id for facts in await visible(log_pieces)]
        whole = piece(0, 9, tier=4)
        done = await asyncio.gather(*(log_pieces.replace(ids, whole, NOW) for _ in range(3)))
        assert sorted(done) == [False, False, True]
        assert not await log_pieces.replace([999], whole, NOW)
        assert len(await visible(log_pieces)) == 1

    async def test_covering(self, log_pieces: LogPieces) -> None:
        for first in (0, 10, 20):
            await log_pieces.add([piece(first, first + 9)], NOW)
        moment = await log_pieces.moment()
        found = await log_pieces.covering(source(), 1, 9, 10, moment)
        assert [facts.first for facts in found] == [0, 10]
        assert await log_pieces.covering(source(), 2, 9, 10, moment) == []

    async def test_arrived(self, log_pieces: LogPieces) -> None:
        for name in "abab":
            first = 0 if len(await visible(log_pieces)) < 2 else 10
            await log_pieces.add([piece(first, first + 9, of=source(name))], NOW)
        ids = sorted(facts.id for facts in await visible(log_pieces))
        assert await log_pieces.replace([ids[0], ids[2]], piece(0, 19), NOW)
        moment = await log_pieces.moment()
        found = await log_pieces.arrived(ALL, ids[0], ids[1], moment)
        assert sorted(facts.first_arrived for facts in found) == [ids[0], ids[1]]
        assert await log_pieces.arrived(ALL, ids[3], moment, moment) == []

    async def test_what_is_mergeable(self, log_pieces: LogPieces) -> None:
        async def groups(rule: MergeRule) -> list[list[int]]:
            found = await log_pieces.mergeable(rule, 10)
            return [[facts.first for facts in group] for group in found]

        await log_pieces.add([piece(0, 9)], NOW)
        await log_pieces.add([piece(10, 19)], NOW + 5)
        await log_pieces.add([piece(of=source("b"))], NOW + 5)
        assert await groups(MergeRule(4, 3, 1000, NOW)) == []
        assert await groups(MergeRule(4, 2, 1000, NOW)) == [[0, 10]]
        assert await groups(MergeRule(4, 3, 200, NOW)) == [[0, 10]]
        assert await groups(MergeRule(4, 3, 1000, NOW + 1)) == [[0, 10]]
        assert await groups(MergeRule(0, 1, 1, NOW + 9)) == []
        ids = [facts.id for facts in await visible(log_pieces, PieceSelection(names=("a",)))]
        assert await log_pieces.replace(sorted(ids), piece(0, 19, tier=4), NOW)
        assert await groups(MergeRule(4, 1, 1, NOW)) == [[0]]

    async def test_sums_follow_every_change(self, log_pieces: LogPieces) -> None:
        size = len(b"summary") + len(b"body 0")
        await log_pieces.add([piece()], NOW)
        await log_pieces.add([piece(of=source("b", "work"))], NOW)
        found = {one.agent: (one.pieces, one.bytes) for one in await log_pieces.stored()}
        assert found == {"home": (1, size), "work": (1, size)}
        await log_pieces.delete_oldest("home", 1, 0.0)
        found = {one.agent: (one.pieces, one.bytes) for one in await log_pieces.stored()}
        assert found.get("home", (0, 0)) == (0, 0)
        assert found["work"] == (1, size)

    async def test_the_oldest_go_first(self, log_pieces: LogPieces) -> None:
        size = len(b"summary") + len(b"body 0")
        for name, latest in (("a", 30.0), ("b", 10.0), ("c", 20.0)):
            await log_pieces.add([piece(of=source(name), latest=latest)], NOW)
        assert await log_pieces.delete_oldest(None, 0, 10.0) == 0
        assert await log_pieces.delete_oldest(None, 0, 10.1) == size
        assert await log_pieces.delete_oldest(None, 1, 0.0) == size
        assert [facts.source.name for facts in await visible(log_pieces)] == ["a"]

    async def test_deleted_lines_are_not_taken_again(self, log_pieces: LogPieces) -> None:
        await log_pieces.add([piece(0, 9)], NOW)
        await log_pieces.delete_oldest(None, 10**9, 0.0)
        assert await log_pieces.add([piece(0, 9)], NOW) == [SourceProgress(1, 10, 10.0)]
