"""Runs with archived answers, dead requests and items of a test's choice, in a running center."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from zlib import crc32

from skep.archive.frames import Exchange, FrameMaker
from skep.model.block import BlockReport
from skep.model.request import Outcome
from skep.runtime.clock import SystemClock
from skep.testing.grounds.centers import RunningCenter, works_of
from skep.testing.polling import until


async def answered(
    center: RunningCenter, run: str, body: bytes, headers: list[tuple[str, str]], uri: str
) -> int:
    """A request whose answer is archived; returns its number."""
    await center.open_run(run)
    await center.put(run, [uri])
    hand = center.hand_agent(f"agent-{run}"[:40])
    await hand.register()
    await center.dispatched()
    (block,) = await hand.lease()
    (work,) = works_of(block)
    page = Exchange(work.uri, status=200, reason="OK", response_headers=headers, body=body)
    frame = FrameMaker(SystemClock(), Random(1)).exchange_frames(page)  # noqa: S311 (a test repeats)
    report = BlockReport(
        block.id,
        block.token,
        [Outcome(work.id, "", 200, offset=0, length=len(frame))],
        frames=frame,
    )
    assert await hand.report(report) == ["stored"]
    return work.id


async def failed(
    center: RunningCenter, run: str, uris: Sequence[str], detail: str | Mapping[str, str]
) -> list[int]:
    """Dead requests of a run; returns their numbers."""
    await center.open_run(run, retries=0)
    await center.put(run, uris)
    hand = center.hand_agent(f"agent-{run}"[:40])
    await hand.register()
    numbers: list[int] = []
    while len(numbers) < len(uris):
        await center.dispatched()
        for block in await hand.lease(want=4):
            works = works_of(block)
            outcomes = [
                Outcome(work.id, "status", 404, detail=_detail(detail, work.uri)) for work in works
            ]
            await hand.report(BlockReport(block.id, block.token, outcomes))
            numbers += [work.id for work in works]
    return numbers


def _detail(detail: str | Mapping[str, str], uri: str) -> str:
    return detail if isinstance(detail, str) else detail[uri]


async def collected(center: RunningCenter, run: str, items: list[dict[str, object]]) -> None:
    """A run with these items, stored as its driver does."""
    await center.open_run(run)
    driver = (await center.admin.post(f"/requestqueue/{run}/driver", {})).json()["driver"]
    request = crc32(run.encode())  # items are named by request and number
    turn = {"driver": driver, "items": [[request, at, one] for at, one in enumerate(items)]}
    answer = await center.admin.post(f"/requestqueue/{run}/turn", turn)
    assert answer.status == 200, answer.content


async def group_of(center: RunningCenter, host: str) -> str:
    """The failure group of a host, once the center has counted it."""
    names: list[str] = []

    async def counted() -> bool:
        found = (await center.admin.get(f"/api/v1/failure-groups?host={host}")).json()
        names[:] = [one["group"] for one in found["items"]]
        return bool(names)

    await until(counted)
    return names[0]
