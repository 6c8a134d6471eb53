"""The queue of agents that wait for work: which are woken, and that none is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from random import Random

import pytest

from skep.errors import BusDown
from skep.lanes.long_poll import LongPolls
from skep.testing import polling


class Ground:
    """Blocks for targets, and agents that take one each."""

    def __init__(self) -> None:
        self.blocks: Counter[str] = Counter()
        self.looks: Counter[str] = Counter()
        self.down = False
        self.room = LongPolls(self.there)

    async def there(self) -> dict[str, int]:
        await asyncio.sleep(0)
        if self.down:
            raise BusDown("away")
        return {target: count for target, count in self.blocks.items() if count}

    async def agent(self, name: str, targets: tuple[str, ...] = ("",), seconds: float = 5.0) -> str:
        """The target of the block that it got; "nothing" after this many seconds."""
        with self.room.place(lambda: targets) as place:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + seconds
            while True:
                place.look()
                self.looks[name] += 1
                await asyncio.sleep(0)  # as the lanes and the store take their time
                found = next((target for target in targets if self.blocks[target]), None)
                if found is not None:
                    self.blocks[found] -= 1
                place.looked()
                if found is not None:
                    return found
                if (left := deadline - loop.time()) <= 0:
                    return "nothing"
                await place.wait(left)

    def push(self, *targets: str) -> None:
        self.blocks.update(targets)
        self.room.notify()


@pytest.fixture
def ground() -> Ground:
    return Ground()


until = partial(polling.until, seconds=5, step=0)


async def settled() -> None:
    """Every task has done what it can do without something new."""
    for _ in range(50):
        await asyncio.sleep(0)


async def waiting(ground: Ground, count: int) -> list[asyncio.Task[str]]:
    tasks = [asyncio.create_task(ground.agent(f"a{number}")) for number in range(count)]
    await until(lambda: ground.room.waiting == count)
    await settled()
    return tasks


async def stop(tasks: list[asyncio.Task[str]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_as_many_are_woken_as_there_are_blocks(ground: Ground) -> None:
    """A hundred wait, three blocks come: three look again, those who came first."""
    tasks = await waiting(ground, 100)
    ground.push("", "", "")
    assert await asyncio.gather(*tasks[:3]) == ["", "", ""]
    await until(lambda: ground.room.waiting == 97)
    assert sum(ground.looks.values()) == 103
    await stop(tasks)


async def test_a_block_finds_the_one_who_may_take_it(ground: Ground) -> None:
    tasks = await waiting(ground, 5)
    mine = asyncio.create_task(ground.agent("me", ("", "me")))
    await until(lambda: ground.room.waiting == 6)
    await settled()
    ground.push("me")
    assert await mine == "me"
    assert sum(ground.looks.values()) == 7, "no other agent was woken for it"
    await stop(tasks)


async def test_who_was_woken_and_leaves_passes_it_on(ground: Ground) -> None:
    """The first in the line is gone when its turn comes: the second gets the block."""
    tasks = await waiting(ground, 2)
    ground.push("")
    await until(lambda: ground.room.waiting != 2)
    tasks[0].cancel()
    assert await tasks[1] == ""
    await stop(tasks)


async def test_when_the_lanes_do_not_answer_all_agents_look(ground: Ground) -> None:
    tasks = await waiting(ground, 10)
    ground.down = True
    ground.push("")
    await until(lambda: sum(ground.looks.values()) == 20)
    await settled()
    assert sum(task.done() for task in tasks) == 1
    await stop(tasks)


async def test_all_are_let_go_at_once(ground: Ground) -> None:
    tasks = await waiting(ground, 10)
    ground.room.wake_all()
    await until(lambda: sum(ground.looks.values()) == 20)
    await stop(tasks)


@pytest.mark.parametrize("seed", range(20))
async def test_no_block_is_ever_left_beside_one_who_may_take_it(ground: Ground, seed: int) -> None:
    """Blocks and agents come and go in any order: in the end no agent waits for what is there."""
    rng = Random(seed)
    tasks: list[asyncio.Task[str]] = []
    for number in range(200):
        match rng.randrange(4):
            case 0:
                targets = tuple(rng.sample(("", "a", "b", "c"), rng.randint(1, 3)))
                tasks.append(asyncio.create_task(ground.agent(str(number), targets)))
            case 1:
                ground.push(*rng.choices(("", "a", "b", "c"), k=rng.randint(1, 3)))
            case 2 if tasks:
                rng.choice(tasks).cancel()
            case _:
                for _ in range(rng.randrange(5)):
                    await asyncio.sleep(0)
    for _ in range(2000):
        await asyncio.sleep(0)
    left = {target for target, count in ground.blocks.items() if count}
    idle = [place for place in ground.room._line if left & set(place.targets())]
    assert idle == []
    await stop(tasks)


async def test_who_is_called_and_leaves_without_a_look_passes_the_call_on(ground: Ground) -> None:
    """One block, two in the line: the first is called and gone, and the second gets it."""
    with ground.room.place(lambda: ("",)) as second:
        with ground.room.place(lambda: ("",)) as first:
            # In the order in which they came: the one that leaves stands before the other.
            ground.room.leave(second)
            ground.room.enter(second)
            ground.push("")
            await until(lambda: first.is_called)
            assert not second.is_called
        await until(lambda: second.is_called)
