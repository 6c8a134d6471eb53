"""The self-check of a center compares its archive segments with the store (issue 10, point 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.center.archive_check import ArchiveCheck
from skep.embed.checks.examination import self_check
from skep.runtime.repair_counts import Repairs
from skep.testing.clock import ManualClock
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until
from skep.wire.api.center import RepairLine

#: Every block begins a segment of its own.
QUICK = {"center_self_check_every": 0.1, "archive_segment_bytes": 1}


async def lines(center: RunningCenter) -> dict[str, dict[str, Any]]:
    answer = (await center.admin.get("/api/v1/repairs")).json()
    return {line["kind"]: line for line in answer["items"]}


async def shows(center: RunningCenter, what: str, count: int) -> bool:
    return bool((await lines(center)).get("archive", {}).get(what, 0) == count)


async def oldest(center: RunningCenter) -> Path:
    """The file of a segment that is closed."""
    await center.archive_pages(6)
    return min((center.folder / "archive").glob("*.warc.zst"))


async def alerts(center: RunningCenter) -> list[dict[str, Any]]:
    items = (await center.admin.get("/api/v1/alerts")).json()["items"]
    return [alert for alert in items if alert["kind"] == "archive_lost"]


async def test_a_deleted_segment_that_is_still_there_is_deleted(tmp_path: Path) -> None:
    """Issue 10, point 3: counted, repaired, shown by the metric."""
    async with running_center(tmp_path, **QUICK) as center:
        center.planted = True
        path = await oldest(center)
        change = f"UPDATE segments SET deleted_at = 1, gone = 1 WHERE name = '{path.name}'"
        await center.services.store.database.write(lambda tx: tx.sql(change))  # type: ignore[attr-defined]
        await until(lambda: shows(center, "repaired", 1))
        assert not path.exists()
        text = (await center.anyone.get("/metrics")).content.decode()
        assert 'skep_repairs_total{kind="archive"} 1.0' in text


@pytest.mark.parametrize("act", ["move", "cut"])
async def test_a_segment_that_is_lost_or_short_is_shown(tmp_path: Path, act: str) -> None:
    """Issue 10, point 3: no row is changed, one alert, `doctor` is red until it is back."""
    async with running_center(tmp_path, **QUICK) as center:
        path = await oldest(center)
        data = path.read_bytes()
        path.unlink()
        if act == "cut":
            path.write_bytes(data[:-1])
        await until(lambda: shows(center, "open", 1))

        async def told() -> bool:
            return bool(await alerts(center))

        await until(told)
        found = msgspec.convert(list((await lines(center)).values()), list[RepairLine])
        assert not self_check(found).ok
        [alert] = await alerts(center)
        assert path.name in alert["detail"]
        path.write_bytes(data)
        await until(lambda: shows(center, "open", 0))
        assert await shows(center, "repaired", 0)


async def test_steps_are_bounded_and_walk_over_all(tmp_path: Path) -> None:
    """Issue 10, point 3: no step looks at more segments than it may; those of others are theirs."""
    async with running_center(tmp_path / "one", archive_segment_bytes=1) as center:
        await oldest(center)
        services, asked = center.services, list[list[str]]()

        class Watched:
            """An archive that notes what it is asked for."""

            def __getattr__(self, name: str) -> Any:
                return getattr(services.archive, name)

            async def sizes(self, names: list[str]) -> dict[str, int]:
                asked.append(names)
                return await services.archive.sizes(names)

        other = f"{services.name}-x-00000001.warc.zst"
        row = f"INSERT INTO segments (name, committed) VALUES ('{other}', 9)"
        await services.store.database.write(lambda tx: tx.sql(row))  # type: ignore[attr-defined]
        watched: Any = Watched()
        repairs = Repairs()
        check = ArchiveCheck(
            services.name, services.store, watched, ManualClock(), repairs, limit=2
        )
        for _ in range(8):
            await check.step()
        assert max(map(len, asked)) == 2
        assert {name for names in asked for name in names} == {
            path.name for path in (center.folder / "archive").glob("*.warc.zst")
        }
        assert repairs.open == {"archive": 0}
        assert not repairs.done
