"""After a restore, a session that ended after the backup stays ended (P4, U9)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from skep.embed.backup.make import back_up
from skep.embed.backup.restore import restore
from skep.runtime.clock import SystemClock
from skep.settings import load
from skep.testing.grounds.browsers import Browser, browser, logged_in
from skep.testing.grounds.centers import running_center


def quiet(_: str) -> None:
    """Progress is not of interest here."""


async def test_sessions_and_links_of_the_backup_are_not_valid(tmp_path: Path) -> None:
    """P4: the backup has the sessions of its time; one of them was stolen and ended since."""
    async with running_center(tmp_path / "live") as center:
        stolen = await logged_in(center, "anna", "admin")
        link = (await center.admin.post("/api/v1/users/anna/link")).json()["link"]
        live = load(flags={"data": str(tmp_path / "live")})
        await asyncio.to_thread(back_up, live, tmp_path / "b", SystemClock(), quiet)
        ended = await center.admin.send("DELETE", "/api/v1/users/anna/sessions")
        assert ended.json() == {"sessions": 1}
        assert (await stolen.call("GET", "/api/v1/me")).problem().status == 401
    await restore(load(flags={"data": str(tmp_path / "new")}), tmp_path / "b", SystemClock(), quiet)
    async with running_center(tmp_path / "new") as center:
        again: Browser = browser(center)
        again.cookies.update(stolen.cookies)
        assert (await again.call("GET", "/api/v1/me")).problem().status == 401
        form = {"kind": "link", "link": link}
        assert (await again.call("POST", "/api/v1/login", form)).problem().status == 401
        users = (await center.admin.get("/api/v1/users")).json()["items"]
        assert "anna" in [one["name"] for one in users]
