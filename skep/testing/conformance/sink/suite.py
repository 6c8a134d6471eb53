"""Conformance tests for sinks. A backend subclasses them and supplies `ground`.

A ground creates sinks for one empty destination and reads the destination without the sink. It
defines which values change there; all others must be read back unchanged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from skep.streams.ports import Record, Refused, Sink

#: Difficult values, each under its own name.
ODD_VALUES: dict[str, Any] = {
    "unicode": "žluťoučký kůň 漢字 \u202e ﬁ",
    "emoji": "🐝👩\u200d👩\u200d👧",
    "quotes": "'; DROP TABLE items; -- \"`\\",
    "formats": "100% %s %(x)s {} :name ?",
    "lines": "a\nb\r\nc\u2028d",
    "formula": '=HYPERLINK("http://example.org")',
    "empty": "",
    "huge": 2**70,
    "largest": 2**63 - 1,
    "smallest": -(2**63),
    "negative": -5,
    "zero": 0,
    "float": 0.1,
    "tiny": 5e-324,
    "yes": True,
    "no": False,
    "nested": {"a": [1, {"b": None}], "č": "🐝"},
    "list": [1, [2.5, "x"], {}],
}
HALF_A_CHARACTER = "\ud83d"


class SinkGround:
    """One empty destination."""

    #: Whether the sink stores its position, so that a repeated record is stored once.
    exactly_once = False
    #: Whether the destination was created with `key=url`.
    has_key = False

    def sink(self) -> Sink:
        """A sink for the destination, not open."""
        raise NotImplementedError

    async def stored(self) -> list[dict[str, Any]]:
        """All records, in order, read without the sink."""
        raise NotImplementedError

    def as_stored(self, data: dict[str, Any]) -> dict[str, Any]:
        """A record as this destination returns it."""
        return data


def records(*data: dict[str, Any], first: int = 1) -> list[Record]:
    """Records with consecutive positions."""
    return [Record(position, one) for position, one in enumerate(data, first)]


def pages(count: int, first: int = 1) -> list[Record]:
    """Plain records; every url occurs once."""
    return [
        Record(number, {"url": f"u{number}", "n": number}) for number in range(first, first + count)
    ]


@asynccontextmanager
async def opened(ground: SinkGround) -> AsyncIterator[tuple[Sink, int]]:
    """(an open sink, its stored position); closed at the end."""
    sink = ground.sink()
    try:
        yield sink, await sink.open()
    finally:
        await sink.close()


async def store(ground: SinkGround, told: Sequence[Record]) -> list[Refused]:
    async with opened(ground) as (sink, _):
        return await sink.write(told)


class SinkConformance:
    """The contract of `skep.streams.ports.Sink`."""

    @pytest.fixture
    def ground(self) -> SinkGround:
        raise NotImplementedError

    async def assert_stored(self, ground: SinkGround, told: Sequence[Record]) -> None:
        assert await ground.stored() == [ground.as_stored(record.data) for record in told]

    async def test_an_empty_place_has_no_position(self, ground: SinkGround) -> None:
        async with opened(ground) as (_, position):
            assert position == 0

    async def test_records_are_stored_in_order_over_batches(self, ground: SinkGround) -> None:
        told = pages(57)
        async with opened(ground) as (sink, _):
            for start in range(0, 57, 10):
                assert await sink.write(told[start : start + 10]) == []
        await self.assert_stored(ground, told)

    async def test_a_large_batch_is_stored_whole(self, ground: SinkGround) -> None:
        told = pages(1500)
        assert await store(ground, told) == []
        await self.assert_stored(ground, told)

    async def test_an_empty_batch_changes_nothing(self, ground: SinkGround) -> None:
        async with opened(ground) as (sink, _):
            assert await sink.write([]) == []
            assert await sink.write(pages(2)) == []
            assert await sink.write([]) == []
        await self.assert_stored(ground, pages(2))

    async def test_the_position_is_known_after_a_reopen(self, ground: SinkGround) -> None:
        for first, before in ((1, 0), (8, 7)):
            async with opened(ground) as (sink, position):
                assert position == (before if ground.exactly_once else 0)
                await sink.write(pages(7, first=first))
        await self.assert_stored(ground, pages(14))

    async def test_positions_may_have_gaps(self, ground: SinkGround) -> None:
        told = [Record(position, {"url": f"u{position}"}) for position in (3, 1000, 2**40)]
        await store(ground, told)
        async with opened(ground) as (_, position):
            assert position == (2**40 if ground.exactly_once else 0)
        await self.assert_stored(ground, told)

    async def test_records_told_again_are_stored_once(self, ground: SinkGround) -> None:
        """Exactly once with a stored position or a key; never less than once."""
        told = pages(20)
        async with opened(ground) as (sink, _):
            await sink.write(told[:12])
            assert await sink.write(told[:12]) == []
            assert await sink.write(told[5:20]) == []
        stored = await ground.stored()
        if ground.exactly_once or ground.has_key:
            await self.assert_stored(ground, told)
        assert {one["url"] for one in stored} == {f"u{n}" for n in range(1, 21)}

    async def test_odd_values_come_back(self, ground: SinkGround) -> None:
        told = records({"url": "u1", **ODD_VALUES}, {"url": "u2", **ODD_VALUES})
        assert await store(ground, told) == []
        for stored in await ground.stored():  # one by one, so that a failure names the value
            expected = ground.as_stored({**ODD_VALUES, "url": stored["url"]})
            for name in ODD_VALUES:
                assert (name, stored.get(name)) == (name, expected.get(name))
        await self.assert_stored(ground, told)

    async def test_a_zero_character_is_kept_or_refused_with_a_reason(
        self, ground: SinkGround
    ) -> None:
        told = records({"url": "u", "text": "a\0b", "deep": [{"x": "\0"}]})
        refused = await store(ground, told)
        if refused:
            assert [one.position for one in refused] == [1]
            assert "zero character" in refused[0].reason
        await self.assert_stored(ground, [] if refused else told)

    async def test_missing_fields_and_nulls(self, ground: SinkGround) -> None:
        told = records(
            {"url": "u1", "a": 1, "b": None},
            {"url": "u2", "a": None},
            {"url": "u3"},
            {"url": "u4", "a": 4, "b": None},
        )
        assert await store(ground, told) == []
        await self.assert_stored(ground, told)

    async def test_a_hundred_fields(self, ground: SinkGround) -> None:
        told = records(*({"url": f"u{n}"} | {f"f{i}": i * n for i in range(100)} for n in (1, 2)))
        assert await store(ground, told) == []
        await self.assert_stored(ground, told)

    async def test_a_long_text(self, ground: SinkGround) -> None:
        told = records({"url": "u", "text": "ž" * 200_000})
        assert await store(ground, told) == []
        await self.assert_stored(ground, told)

    async def test_what_cannot_be_stored_is_refused_before_anything_is(
        self, ground: SinkGround
    ) -> None:
        """The caller stores the refusal first: a crash in between must not lose it."""
        told = pages(5)
        told[2] = Record(3, {"url": "u3", "n": HALF_A_CHARACTER})
        async with opened(ground) as (sink, _):
            refused = await sink.write(told)
            assert [one.position for one in refused] == [3]
            assert refused[0].reason
            assert await ground.stored() == []
            assert await sink.write([one for one in told if one.position != 3]) == []
        await self.assert_stored(ground, [one for one in told if one.position != 3])

    async def test_closing_twice_and_using_it_again(self, ground: SinkGround) -> None:
        sink = ground.sink()
        await sink.open()
        await sink.close()
        await sink.close()
        await sink.open()
        assert await sink.write(pages(1)) == []
        await sink.close()
        await self.assert_stored(ground, pages(1))

    async def test_the_place_is_shown_without_its_password(self, ground: SinkGround) -> None:
        sink = ground.sink()
        try:
            assert sink.describe()
            assert "secret" not in sink.describe()
        finally:
            await sink.close()


class KeyedSinkConformance(SinkConformance):
    """The same tests for a ground with `key=url`, and tests of the key."""

    async def test_a_key_makes_the_same_record_an_update(self, ground: SinkGround) -> None:
        told = records({"url": "a", "n": 1}, {"url": "b", "n": 2}, {"url": "a", "n": 3})
        async with opened(ground) as (sink, _):
            assert await sink.write(told) == []
            assert await sink.write(records({"url": "b", "n": 4}, first=4)) == []
        stored = {one["url"]: one for one in await ground.stored()}
        last = {"a": {"url": "a", "n": 3}, "b": {"url": "b", "n": 4}}
        assert stored == {key: ground.as_stored(one) for key, one in last.items()}

    async def test_a_record_without_its_key_is_refused(self, ground: SinkGround) -> None:
        bad = records({"n": 1}, {"url": None}, {"url": ["x"]}, {"url": ""})
        refused = await store(ground, bad)
        assert [one.position for one in refused] == [1, 2, 3, 4]
        assert all("'url'" in one.reason for one in refused)
        assert await ground.stored() == []
