"""After a restore, work that was given out after the backup is refused (U9)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.embed.backup.make import back_up
from skep.embed.backup.restore import restore
from skep.model.block import Leased
from skep.runtime.clock import SystemClock
from skep.settings import load
from skep.testing import servers
from skep.testing.grounds.centers import HandAgent, RunningCenter, archived, running_center

KINDS = ("sqlite", "postgres", "mariadb")


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The store that is backed up, and an empty one."""
    if request.param == "sqlite":
        yield {}, {}
        return
    with getattr(servers, request.param)() as server:
        yield {"store_url": server.fresh_database()}, {"store_url": server.fresh_database()}


async def leased(center: RunningCenter, hand: HandAgent, uri: str) -> Leased:
    await center.put("r", [{"uri": uri}])
    await center.dispatched()
    [block] = await hand.lease(want=1, wait=10)
    return block


def quiet(_: str) -> None:
    """Progress is not of interest here."""


def settings_of(folder: Path, flags: dict[str, str]) -> Any:
    dotted = {name.replace("_", ".", 1): value for name, value in flags.items()}
    return load(flags={"data": str(folder), **dotted})


async def test_a_report_of_work_given_out_after_the_backup_settles_nothing(
    tmp_path: Path, stores: tuple[dict[str, str], dict[str, str]]
) -> None:
    """U9: a restored store gives no number out a second time: neither those of new requests and
    blocks, nor the next token of a block that was waiting when the backup was made."""
    before, after = stores
    async with running_center(tmp_path / "live", **before) as center:
        hand = center.hand_agent()
        await hand.register()
        await center.open_run("r", block_size=1)
        await center.put("r", [{"uri": "http://w.test/"}])
        await center.dispatched()
        live = settings_of(tmp_path / "live", before)
        await asyncio.to_thread(back_up, live, tmp_path / "b", SystemClock(), quiet)
        old_again = (await hand.lease(want=1, wait=10))[0]
        old_new = await leased(center, hand, "http://x.test/")
    await restore(settings_of(tmp_path / "new", after), tmp_path / "b", SystemClock(), quiet)
    async with running_center(tmp_path / "new", **after) as center:
        hand = center.hand_agent()
        await hand.register()
        await center.dispatched()
        again = (await hand.lease(want=1, wait=10))[0]
        new = await leased(center, hand, "http://y.test/")
        assert again.id == old_again.id
        late = [archived(block)[0] for block in (old_again, old_new)]
        assert set(await hand.report(*late)) <= {"stale", "unknown"}
        assert (await center.ledger()).done == 0
        assert await hand.report(archived(again)[0], archived(new)[0]) == ["stored", "stored"]
