"""Conformance tests for inputs. A backend subclasses them and supplies `ground`.

A ground creates readers of one empty source and adds messages to it without the input.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from skep.streams.inputs.ports import Input, InputMessage

#: Difficult bodies; none contains a line break, which some sources cannot hold.
ODD_BODIES = [b"{}", b"\xff\x00\x80", "žluťoučký 漢字 🐝".encode(), b"  spaces  ", b"x" * 100_000]


class InputGround:
    """One empty source."""

    #: Whether each message is acknowledged alone; otherwise up to the first open one.
    alone = True
    #: Whether every group gets every message.
    groups = True
    #: Whether a message that comes back has its old position.
    names = True

    def reader(self, group: str = "g", name: str = "r") -> Input:
        """A reader, not open. Readers of different groups each get every message."""
        raise NotImplementedError

    async def add(self, bodies: Sequence[bytes]) -> None:
        """Add messages to the source."""
        raise NotImplementedError


@asynccontextmanager
async def opened(reader: Input) -> AsyncIterator[Input]:
    await reader.open()
    try:
        yield reader
    finally:
        await reader.close()


async def everything(reader: Input, limit: int = 100) -> list[InputMessage]:
    """All messages that are there."""
    found: list[InputMessage] = []
    while some := await reader.read(limit, 0):
        found += some
    return found


def bodies(messages: Sequence[InputMessage]) -> list[bytes]:
    return [message.body for message in messages]


class InputConformance:
    """What every input promises."""

    async def test_messages_are_read_once_in_order(self, ground: InputGround) -> None:
        sent = [b"%d" % number for number in range(25)]
        await ground.add(sent)
        async with opened(ground.reader()) as reader:
            found = await everything(reader, 10)
            assert bodies(found) == sent
            assert len({message.position for message in found}) == 25
            assert await reader.read(10, 0) == []

    async def test_a_read_is_bounded(self, ground: InputGround) -> None:
        await ground.add([b"1", b"2", b"3"])
        async with opened(ground.reader()) as reader:
            assert bodies(await reader.read(2, 0)) == [b"1", b"2"]
            assert bodies(await reader.read(2, 0)) == [b"3"]

    async def test_bodies_are_unchanged(self, ground: InputGround) -> None:
        await ground.add(ODD_BODIES)
        async with opened(ground.reader()) as reader:
            assert bodies(await everything(reader)) == ODD_BODIES

    async def test_what_is_not_acknowledged_comes_back(self, ground: InputGround) -> None:
        """S6: at least once."""
        await ground.add([b"1", b"2", b"3", b"4"])
        async with opened(ground.reader()) as reader:
            first = await everything(reader)
            await reader.acknowledge([message.position for message in first[:2]])
        async with opened(ground.reader()) as reader:
            again = await everything(reader)
            assert bodies(again) == [b"3", b"4"]
            same = [message.position for message in again] == [m.position for m in first[2:]]
            assert same is ground.names
            await reader.acknowledge([message.position for message in again])
        async with opened(ground.reader()) as reader:
            assert await everything(reader) == []

    async def test_acknowledging_out_of_order_loses_nothing(self, ground: InputGround) -> None:
        await ground.add([b"1", b"2", b"3"])
        async with opened(ground.reader()) as reader:
            _, second, third = await everything(reader)
            await reader.acknowledge([third.position])
            await reader.acknowledge([second.position])
        async with opened(ground.reader()) as reader:
            expected = [b"1"] if ground.alone else [b"1", b"2", b"3"]
            assert bodies(await everything(reader)) == expected

    async def test_acknowledging_twice_does_no_harm(self, ground: InputGround) -> None:
        await ground.add([b"1", b"2"])
        async with opened(ground.reader()) as reader:
            first, _ = await everything(reader)
            for _ in range(2):
                await reader.acknowledge([first.position])
            await reader.acknowledge([])
        async with opened(ground.reader()) as reader:
            assert bodies(await everything(reader)) == [b"2"]

    async def test_each_group_gets_every_message(self, ground: InputGround) -> None:
        """S2: several inputs may read one topic, and each gets every message."""
        await ground.add([b"1", b"2"])
        for group in ("a", "b") if ground.groups else ("a",):
            async with opened(ground.reader(group)) as reader:
                found = await everything(reader)
                assert bodies(found) == [b"1", b"2"]
                await reader.acknowledge([message.position for message in found])

    async def test_later_messages_follow(self, ground: InputGround) -> None:
        async with opened(ground.reader()) as reader:
            assert await reader.read(10, 0) == []
            await ground.add([b"1"])
            assert bodies(await reader.read(10, 5)) == [b"1"]
            await ground.add([b"2"])
            assert bodies(await reader.read(10, 5)) == [b"2"]

    async def test_a_description_has_no_password(self, ground: InputGround) -> None:
        assert "secret" not in ground.reader().describe()
