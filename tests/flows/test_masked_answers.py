"""Credentials in every place that takes one, and every GET route as a caller who may look."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.archive.frames import Exchange, FrameMaker, read_records
from skep.center.app import api_table
from skep.center.auth import ALLOWED, Role
from skep.model.block import BlockReport
from skep.model.request import Outcome
from skep.testing.centers import Caller, RunningCenter, running_center, works_of

CANARY = "C4nary"
LOGIN = f"http://user:{CANARY}@127.0.0.1:9/x?password={CANARY}&page=1"
HEADERS = {
    "Authorization": f"Bearer {CANARY}",
    "X-Auth-Token": CANARY,
    "Api-Key": CANARY,
    "X-Anything": CANARY,
    "Referer": LOGIN,
    "Accept": "text/html",
}
SETTINGS: dict[str, Any] = {
    "headers": HEADERS,
    "exits": {"proxies": [f"http://u:{CANARY}@127.0.0.1:3128"]},
    "sessions": {"headers": [HEADERS, {"cookie": CANARY}]},
}
REQUEST = {"uri": LOGIN, "headers": HEADERS, "meta": {"password": CANARY, "deep": [{"u": LOGIN}]}}
JOBS: dict[str, dict[str, Any]] = {
    "plain": {
        "note": f"see {LOGIN}",
        "settings": {**SETTINGS, "cookie": CANARY},
        "requests": [REQUEST, LOGIN],
        "notices": [{"webhook": f"http://127.0.0.1/{CANARY}"}],
    },
    "curled": {
        "downloader": {
            "kind": "curl",
            "options": ["-u", f"u:{CANARY}", "-H", f"Api-Key: {CANARY}", "-b", f"a={CANARY}"],
        },
        "requests": ["http://127.0.0.1:9/"],
    },
    "generated": {
        "generators": [
            {
                "kind": "list",
                "name": "g",
                "uris": [REQUEST, LOGIN],
                "arguments": {"anything": CANARY, "deep": {"list": [CANARY]}},
            },
            {"kind": "sitemap", "url": LOGIN},
        ],
    },
    "spidery": {
        "spider": {"path": "package.module:Class", "arguments": {"tag": CANARY}},
        "enabled": False,
        "sinks": [f"postgresql://u:{CANARY}@127.0.0.1/db?table=t"],
    },
}


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path / "center", jobs_runs_limit=0) as running:
        yield running


async def planted(center: RunningCenter) -> dict[str, list[str]]:
    """Puts canaries everywhere; returns values for the parameters of paths."""
    for name, document in JOBS.items():
        answer = await center.admin.put(f"/api/v1/jobs/{name}?test=false", document)
        assert answer.status == 200, answer.content
    await center.open_run("r1", **SETTINGS)
    await center.open_run("r2", curl=["-u", f"u:{CANARY}"], downloader="curl")
    await center.put("r1", [REQUEST, {**REQUEST, "uri": f"{LOGIN}&n=2"}])
    agent = center.hand_agent()
    await agent.register()
    await center.dispatched()
    (block,) = await agent.lease()
    maker = FrameMaker(center.services.clock, center.services.rng)
    outcomes, frames = [], b""
    for work in works_of(block):
        sent = tuple(HEADERS.items())
        frame = maker.exchange_frames(Exchange(work.uri, request_headers=sent, status=500))
        place: dict[str, Any] = {"offset": len(frames), "length": len(frame), "final_uri": work.uri}
        detail = f"could not connect to {work.uri}"
        outcomes.append(Outcome(work.id, "status", 500, detail, **place))
        frames += frame
    await agent.report(BlockReport(block.id, block.token, outcomes, frames=frames))
    await center.services.store.alerts.raise_("sink", "plain", f"{LOGIN}: refused", 1.0)
    run = (await center.admin.post("/api/v1/jobs/plain/run")).json()["run"]
    ids = [str(work.id) for work in works_of(block)]
    groups = (await center.admin.get("/api/v1/failures")).json()["items"]
    return {
        "run": ["r1", "r2", run],
        "job": list(JOBS),
        "request": ids,
        "block": [str(block.id)],
        "host": ["127.0.0.1"],
        "agent": ["a1"],
        "group": [group["group"] for group in groups],
        "no": ["0"],
        "id": ["0"],
        "digest": ["0"],
    }


def paths(path: str, values: dict[str, list[str]]) -> list[str]:
    """The path with each value of its parameters."""
    found = [path]
    for name in re.findall(r"{(\w+)(?::\w+)?}", path):
        pattern = re.compile(rf"{{{name}(?::\w+)?}}")
        found = [pattern.sub(value, one) for one in found for value in values.get(name, ["x"])]
    return found


def unpacked(content: bytes) -> bytes:
    """With everything that is packed in it."""
    for start in [found.start() for found in re.finditer(rb"\x28\xb5\x2f\xfd", content)]:
        try:
            content += b"".join(
                r.block + str(r.headers).encode() for r in read_records(content[start:])
            )
        except Exception:  # noqa: BLE001 - bytes that only look like a frame
            continue
    return content


async def leaks(caller: Caller, values: dict[str, list[str]]) -> list[str]:
    """GET routes that showed a canary, and in what."""
    found = []
    for row in api_table():
        role = row.role
        if row.method != "GET" or (role is not Role.PUBLIC and Role.VIEWER not in ALLOWED[role]):
            continue
        for path in paths(row.path, values):
            for query in ("", "?items=true&unread=true"):
                sent = {"Accept": "application/msgpack"}
                answer = await caller.send("GET", path + query, headers=sent)
                content = unpacked(answer.content)
                if CANARY.encode() in content:
                    at = content.index(CANARY.encode())
                    found.append(f"{path}: {content[max(0, at - 80) : at + 20]!r}")
    return found


async def test_a_viewer_sees_no_credential(center: RunningCenter) -> None:
    """S4: a canary in every place, every GET route of the table, answers unpacked."""
    values = await planted(center)
    viewer = await center.caller(Role.VIEWER)
    assert await leaks(viewer, values) == []
    assert await leaks(center.anyone, values) == []
    assert len(await leaks(center.admin, values)) > 5, "the canaries are where they should be"
    shown = (await viewer.get("/api/v1/runs/r1")).json()["run"]["settings"]["headers"]
    assert (shown["Accept"], shown["X-Auth-Token"]) == ("text/html", "***")


async def test_a_job_that_was_read_masked_is_not_kept(center: RunningCenter) -> None:
    """S4: stars never replace a secret."""
    await planted(center)
    viewer = await center.caller(Role.VIEWER)
    for name in ("plain", "curled", "generated", "spidery"):
        read = (await viewer.get(f"/api/v1/jobs/{name}")).json()["kept"]["job"]
        answer = await center.admin.put(f"/api/v1/jobs/{name}?test=false", read)
        assert (answer.status, answer.problem().code) == (400, "invalid_job")
        assert "is masked; write the real value" in answer.problem().detail
        kept = await center.services.store.jobs.get(name)
        assert CANARY.encode() in msgspec.json.encode(kept.job)
    clear = (await center.admin.get("/api/v1/jobs/plain")).json()["kept"]["job"]
    assert (await center.admin.put("/api/v1/jobs/plain?test=false", clear)).status == 200
