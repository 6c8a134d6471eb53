"""Credentials in every place that takes one, and every GET route as a caller who may look."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from skep.archive.frames import Exchange, FrameMaker, read_records
from skep.center.app import api_table
from skep.center.http.authentication import ALLOWED, Role
from skep.center.http.endpoint import Endpoint
from skep.model.block import BlockReport
from skep.model.delivery import Delivery, DeliveryLease
from skep.model.fleet.agent import Vitals
from skep.model.hosts.host import SiteRule
from skep.model.jobs.app import AppSpec, InstanceState
from skep.model.jobs.fire import Fire, FireState, Planned
from skep.model.jobs.generator_progress import Counts, Generation, GenerationState
from skep.model.jobs.notice import Notice
from skep.model.jobs.schedule import Schedule
from skep.model.request import Outcome
from skep.store.ports.apps import LogPiece, ReportedInstance
from skep.testing.grounds.centers import Caller, RunningCenter, running_center, works_of
from skep.testing.polling import until

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
META: dict[str, Any] = {
    "password": CANARY,
    "deep": [{"u": LOGIN}],
    "passwords": [CANARY, [CANARY]],
    "auth": {"user": "me", "what": CANARY},
    "Headers": {"X-Any": CANARY},
    "pairs": [["Authorization", CANARY], {"name": "Cookie", "value": CANARY}],
    LOGIN: 1,
    "encoded": LOGIN.replace(":", "%3A").replace("/", "%2F").replace("@", "%40"),
    "other case": LOGIN.replace("password", "PassWord"),
    "quoted": f"http://u:it's&{CANARY}@127.0.0.1/",
}
REQUEST = {"uri": LOGIN, "headers": HEADERS, "meta": META}
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
            "options": [
                *("-u", f"u:{CANARY}", "-H", f"Api-Key: {CANARY}", "-b", f"a={CANARY}"),
                *("--oauth2-bearer", f"--{CANARY}"),
            ],
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
        "sinks": [
            f"postgresql://u:{CANARY}@127.0.0.1/db?table=t",
            f"https://{CANARY}@127.0.0.1/services/{CANARY}?batch=1",
            f"redis://{CANARY}@127.0.0.1/0?list=a",
        ],
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
    await plant_records(center)
    asked = {"resource": "failures", "act": "retry", "filter": f'run:no-such-run "{LOGIN}"'}
    started = await center.admin.post("/api/v1/operations", {**asked, "dry_run": False})
    operation = started.json()["operation"]["id"]
    exported = {"resource": "requests", "act": "export", "filter": "run:r1", "dry_run": False}
    started = await center.admin.post("/api/v1/operations", exported)
    export = f"/api/v1/operations/{started.json()['operation']['id']}"
    await until(lambda: _has_ended(center, export))
    return {
        "operation": [str(operation), export.rpartition("/")[2]],
        "run": ["r1", "r2", run],
        "identity": ["r1"],
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


async def plant_records(center: RunningCenter) -> None:
    """What centers and agents write by themselves, about run r1 and job plain."""
    store, now = center.services.store, 1.0
    await store.deliveries.open([Delivery("r1", "k", "plain", LOGIN)], now)
    (held,) = await store.deliveries.claim("c", now, 2.0, 10)
    lease = DeliveryLease(held.run, held.sink, "c", held.lease)
    await store.deliveries.reject(lease, 1, f"{LOGIN}: refused", now)
    await store.deliveries.failed(lease, f"{LOGIN}: refused", 3.0, now)
    begun = await store.generations.begin(Generation("r1", 0, LOGIN, "list"))
    await store.generations.end(begun, GenerationState.FAILED, f"at {LOGIN}", Counts())
    fire = Fire("plain", "1", 1, FireState.SKIPPED, f"asked {LOGIN}")
    assert await store.fires.add([fire]) == 1
    await store.fires.plan(Planned("plain", Schedule(cron="0 0 1 1 *"), 1, 2**32))
    await store.hosts.set_rule("127.0.0.1", SiteRule(rate=1.0), now)
    (made,) = await store.apps.create("r1", AppSpec(), {}, ["a1"], now)
    token, state = made.token, InstanceState.FAILED
    piece = LogPiece("r1", 0, token, 0, f"GET {LOGIN}\nAuthorization: {CANARY}\n".encode())
    await store.apps.add_log("a1", piece, 2**20, now)
    await store.apps.report("a1", [ReportedInstance("r1", 0, token, state, 0, 1, 1, LOGIN)], now)
    driver = (await center.admin.post("/requestqueue/r3/driver", {})).json()["driver"]
    end = {"driver": driver, "state": "failed", "reason": f"bug at {LOGIN}"}
    assert (await center.admin.post("/requestqueue/r3/end", end)).status == 200
    (ending,) = [one for one in await store.notices.endings(10) if one.run == "r3"]
    target = f"https://127.0.0.1/services/{CANARY}"
    waits = ("waiting", 1, 1.0, 1.0)
    notice = Notice("n", "r3", "plain", "webhook", target, "", CANARY.encode(), *waits)
    await store.notices.post(ending.id, [notice])
    await store.notices.failed("n", f"{LOGIN}: answered 500", None)
    agent = center.hand_agent()
    await agent.heartbeat(vitals=Vitals(trouble=f"proxy {LOGIN} is away", trouble_age=1.0))


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


#: Routes that need a query to answer.
QUERIES = {
    "/api/v1/placement/preview": "?remove=a1",
    "/api/v1/runs/{run}/pages": "?unread=true",
    "/api/v1/logs/context": "?kind=center&source=c1&token=1&offset=0",
    "/api/v1/series": "?name=requests.done",
    "/api/v1/events": "?watch=runs&watch=requests&watch=jobs&watch=agents&seconds=0.01",
}
#: Lists of these routes are empty here: what they show holds numbers and names alone.
EMPTY_LIST = (b'{"items":[]', b'{"blocks":[]')
EMPTY = {
    "/api/v1/runs/{run}/items",
    "/api/v1/storage/plan",
    "/api/v1/agents/{agent}/allocations",
    "/api/v1/sessions",
    "/api/v1/views",
}


def shown_to_viewers() -> list[Endpoint]:
    """Rows of the table."""
    rows = [row for row in api_table() if row.method == "GET"]
    return [row for row in rows if row.role is Role.PUBLIC or Role.VIEWER in ALLOWED[row.role]]


async def _has_ended(center: RunningCenter, path: str) -> bool:
    return bool((await center.admin.get(path)).json()["ended_at"])


async def leaks(caller: Caller, values: dict[str, list[str]]) -> list[str]:
    """GET routes that showed a canary, and in what."""
    found = []
    for row in shown_to_viewers():
        for path in paths(row.path, values):
            for query in (QUERIES.get(row.path, ""), "?items=true&unread=true&from=0"):
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


async def test_every_route_has_something_to_show(center: RunningCenter) -> None:
    """S4: the test above looks at answers, not at `404` and empty lists."""
    values = await planted(center)
    blind = []
    for row in shown_to_viewers():
        asked = [path + QUERIES.get(row.path, "") for path in paths(row.path, values)]
        answers = [await center.admin.get(path) for path in asked]
        good = [answer.content for answer in answers if answer.status == 200]
        if not good or (row.path not in EMPTY and all(one.startswith(EMPTY_LIST) for one in good)):
            blind.append((row.path, [answer.status for answer in answers], good[:1]))
    assert blind == [], blind


async def test_a_log_is_masked_however_it_is_cut(center: RunningCenter) -> None:
    """S4: a caller chooses where its part of a log begins and ends; a secret that is cut in
    two is still one. Callers who may only look get whole lines."""
    await planted(center)
    viewer = await center.caller(Role.VIEWER)
    path = "/api/v1/runs/r1/instances/0/log"
    whole = (await center.admin.get(path)).json()
    for limit in (1, 7, 1000):
        text, at = "", 0
        while at < whole["end"]:
            part = (await viewer.get(f"{path}?from={at}&limit={limit}")).json()
            assert part["next"] > at
            text, at = text + part["text"], part["next"]
        assert CANARY not in text
        assert text.startswith("GET http://***@127.0.0.1:9/x?password=***&page=1\n")
    for start in range(-whole["end"], whole["end"]):
        part = (await viewer.get(f"{path}?from={start}&limit=5")).json()
        assert not any(CANARY[n:] in part["text"] for n in range(4))
    assert (await center.admin.get(f"{path}?from=4&limit=4")).json()["text"] == "http"


async def test_an_error_shows_no_credential_to_a_viewer(center: RunningCenter) -> None:
    """S4: what is wrong may be named with what it was."""
    viewer = await center.caller(Role.VIEWER)
    path = f"/api/v1/runs/x@y?password={CANARY}"
    assert CANARY not in str((await viewer.get(path)).content)
    answer = await viewer.get(f"/api/v1/jobs/{quote(f'password={CANARY}', safe='')}")
    assert (answer.status, CANARY in answer.content.decode()) == (400, False)


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
