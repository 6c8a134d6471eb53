"""Runs at a real center: retries, pauses, ends, histories, and what people are shown of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from skep.archive.frames import Exchange, FrameMaker
from skep.center.http.authentication import Role
from skep.model.block import BlockReport
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.runtime.clock import SystemClock
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.testing.grounds.queued_runs import fill, urls
from skep.testing.polling import until


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """Retries come soon, the rest is as shipped."""
    async with running_center(tmp_path, lanes_retry_first=0.01, lanes_retry_cap=0.02) as running:
        yield running


async def test_failed_requests_come_back_up_to_the_limit(center: RunningCenter) -> None:
    """D5: tried again after a back-off, then dead, with every attempt in the history."""
    await fill(center, "r", 1, retries=2)
    agent = center.hand_agent()
    await agent.register()
    for attempt in range(3):
        (block,) = await agent.lease(wait=20.0)
        (work,) = works_of(block)
        assert await agent.finish(block, failure="network", status=0) == "stored"
        ledger = await center.ledger("r")
        assert ledger.accepted == 1
        assert ledger.dead == (attempt == 2)
    detail = (await center.admin.get(f"/api/v1/requests/{work.id}")).json()
    assert detail["request"]["state"] == "dead"
    assert detail["request"]["failures"] == 3
    assert [attempt["failure"] for attempt in detail["attempts"]] == ["network"] * 3
    assert (await center.admin.get("/requestqueue/r")).json()["blocks"][-1]["requests"][0][
        "state"
    ] == "dead"


async def test_a_server_that_asks_for_patience_gets_it(center: RunningCenter) -> None:
    """D5, fault 35: Retry-After wins over a shorter back-off."""
    await fill(center, "r", 1, retries=5)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    now = center.services.clock.now()
    outcome = Outcome(1, "status", 429, retry_after=3600.0)
    await agent.report(BlockReport(block.id, block.token, [outcome]))
    request = (await center.admin.get("/api/v1/requests/1")).json()["request"]
    assert request["state"] == "delayed"
    assert now + 3599 < request["not_before"] < now + 3700
    assert await center.ledger("r") == Ledger(accepted=1, delayed=1)


@pytest.mark.parametrize(("failure", "status"), [("status", 404), ("limit", 200)])
async def test_what_would_only_fail_again_is_dead_at_once(
    center: RunningCenter, failure: str, status: int
) -> None:
    """D5: retries are for failures that may pass."""
    await fill(center, "r", 1, retries=5)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    await agent.finish(block, failure, status)
    assert await center.ledger("r") == Ledger(accepted=1, dead=1)


async def test_requests_that_are_no_longer_wanted_are_counted(center: RunningCenter) -> None:
    """Fault 8: accepted = done + expired; none of the expired was handed out."""
    await center.open_run("r")
    await center.admin.post("/api/v1/runs/r/pause")
    mortal = [{"uri": url, "expires_in": 0.05} for url in urls(5, "mortal")]
    await center.put("r", [*urls(5), *mortal])

    async def expired() -> bool:
        return (await center.ledger("r")).expired == 5

    await until(expired)
    await center.admin.post("/api/v1/runs/r/continue")
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease(wait=20.0)
    assert [work.uri for work in works_of(block)] == urls(5)
    await agent.finish(block)
    assert await center.ledger("r") == Ledger(accepted=10, done=5, expired=5)


async def test_a_paused_run_starts_nothing_and_goes_on_at_once(center: RunningCenter) -> None:
    """R2: its blocks leave the lanes and are back when it continues."""
    await fill(center, "r", 20, block_size=10)
    agent = center.hand_agent()
    await agent.register()
    (held,) = await agent.lease()
    view = (await center.admin.post("/api/v1/runs/r/pause")).json()
    assert (view["run"]["state"], view["unaccounted"]) == ("paused", 0)
    assert await agent.lease(want=5) == []
    await center.put("r", urls(5, "late"))
    assert await agent.finish(held) == "stored", "what runs may end"
    assert await center.ledger("r") == Ledger(accepted=25, waiting=5, queued=10, done=10)
    await center.admin.post("/api/v1/runs/r/continue")
    taken = await agent.lease(want=5)
    await center.dispatched()
    taken += await agent.lease(want=5)
    assert sorted(block.size for block in taken) == [5, 10]
    for block in taken:
        await agent.finish(block)
    assert await center.ledger("r") == Ledger(accepted=25, done=25)


async def test_a_cancelled_run_ends_everything_but_what_is_in_hands(center: RunningCenter) -> None:
    """R2: an outcome that comes after the cancelling counts; a failure is not retried."""
    await fill(center, "r", 30, block_size=10, retries=5)
    agent = center.hand_agent()
    await agent.register()
    good, bad = await agent.lease(want=2)
    view = (await center.admin.post("/api/v1/runs/r/cancel")).json()
    assert view["ledger"]["cancelled"] == 10
    assert await center.ledger("r") == Ledger(accepted=30, leased=20, cancelled=10)
    assert await agent.lease() == []
    await agent.finish(good)
    await agent.finish(bad, failure="network", status=0)
    assert await center.ledger("r") == Ledger(accepted=30, done=10, cancelled=20)
    answer = await center.admin.post("/api/v1/runs/r/continue")
    assert (answer.status, answer.problem().code) == (409, "conflict")


async def test_a_finished_run_takes_no_more_and_can_be_opened_again(center: RunningCenter) -> None:
    """R2: finish, then continue."""
    await fill(center, "r", 1)
    agent = center.hand_agent()
    await agent.register()
    await agent.finish((await agent.lease())[0])
    assert (await center.admin.post("/api/v1/runs/r/finish")).json()["run"]["state"] == "finished"
    assert (await center.admin.post("/requestqueue/r", urls(1, "late"))).status == 409
    answer = await center.admin.post("/api/v1/runs/r/pause")
    assert answer.problem().code == "conflict"
    await center.admin.post("/api/v1/runs/r/continue")
    assert await center.put("r", urls(1, "late")) == {"new": 1, "known": 0}


async def test_dead_requests_can_be_sent_again(center: RunningCenter) -> None:
    """D5: by hand, with their failures forgiven and their history kept."""
    await fill(center, "r", 4)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    await agent.finish(block, failure="timeout", status=0)
    assert await center.ledger("r") == Ledger(accepted=4, dead=4)
    assert (await center.admin.post("/api/v1/runs/r/revive")).json() == {"requests": 4}
    assert (await center.admin.post("/api/v1/runs/r/revive")).json() == {"requests": 0}
    (block,) = await agent.lease(wait=20.0)
    await agent.finish(block)
    assert await center.ledger("r") == Ledger(accepted=4, done=4)
    detail = (await center.admin.get("/api/v1/requests/1")).json()
    assert [attempt["failure"] for attempt in detail["attempts"]] == ["timeout", ""]


async def test_opening_a_run_twice_changes_nothing(center: RunningCenter) -> None:
    """Fault 2: the same call again gives the run that is there."""
    await center.open_run("r", retries=3)
    await center.put("r", urls(2))
    answer = await center.admin.put("/api/v1/runs/r", {"settings": {"retries": 9}})
    view = answer.json()
    assert view["run"]["settings"]["retries"] == 3
    assert view["ledger"]["accepted"] == 2


async def test_runs_are_listed_newest_first_in_pages(center: RunningCenter) -> None:
    for n in range(5):
        await center.open_run(f"r{n}")
    page = (await center.admin.get("/api/v1/runs?limit=3")).json()
    assert [run["id"] for run in page["items"]] == ["r4", "r3", "r2"]
    page = (await center.admin.get(f"/api/v1/runs?limit=3&before={page['next']}")).json()
    assert [run["id"] for run in page["items"]] == ["r1", "r0"]
    assert page["next"] is None


async def test_a_block_shows_its_history_in_the_founders_numbers(center: RunningCenter) -> None:
    """C7: ready 1, using 2, success 4, failed 8, retry 16, each with a detail text."""
    await fill(center, "r", 2)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    assert (await center.admin.get("/api/v1/requests/1")).json()["request"]["state"] == "leased"
    await agent.give_back(block)
    assert (await center.admin.get("/api/v1/requests/1")).json()["request"]["state"] == "queued"
    (block,) = await agent.lease()
    await agent.finish(block)
    found = (await center.admin.get(f"/api/v1/blocks/{block.id}")).json()
    assert [change["state"] for change in found["history"]] == [1, 2, 16, 2, 4]
    assert all(change["detail"] for change in found["history"])
    assert (found["block"]["state"], found["block"]["open"], found["block"]["token"]) == (4, 0, 2)


def warc_frames(uri: str, body: bytes) -> bytes:
    headers = [("Content-Type", "text/html")]
    exchange = Exchange(uri, status=200, reason="OK", response_headers=headers, body=body)
    return FrameMaker(SystemClock(), Random(1)).exchange_frames(exchange)


async def test_archived_bytes_leave_as_an_attachment(center: RunningCenter) -> None:
    """D8, fault 53: hostile content is never rendered, and comes back byte for byte."""
    await fill(center, "r", 1)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    body = b"<script>alert(1)</script>" * 100
    frames = warc_frames(works_of(block)[0].uri, body)
    outcome = Outcome(1, status=200, received=len(body), length=len(frames))
    report = BlockReport(block.id, block.token, [outcome], frames=frames)
    assert await agent.report(report) == ["stored"]
    for what, kind in (("body", "application/octet-stream"), ("record", "application/zstd")):
        answer = await center.admin.get(f"/api/v1/requests/1/{what}")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == kind
        assert answer.headers["Content-Disposition"].startswith("attachment;")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.content == (body if what == "body" else frames)


async def test_the_ledger_over_all_is_a_line(center: RunningCenter) -> None:
    """R3: the equation, for one run, over all, and counted row by row."""
    await fill(center, "one", 3)
    await fill(center, "two", 4)
    for query, count in (("", 7), ("?run=one", 3), ("?run=two&audit=true", 4), ("?audit=true", 7)):
        found = (await center.admin.get(f"/api/v1/ledger{query}")).json()
        assert (found["total"], found["unaccounted"]) == (count, 0)
        assert found["line"].startswith(f"{count} accepted = ")
    assert await center.metric("skep_ledger_unaccounted") == 0
    assert await center.metric("skep_requests_accepted_total") == 7


async def test_health_says_what_it_checked(center: RunningCenter) -> None:
    """S13: paths, addresses and sizes are for callers with a token."""
    known = (await (await center.caller(Role.VIEWER)).get("/readyz?verbose")).json()
    assert str(center.folder) in known["checks"][0]["detail"]
    ready = (await center.anyone.get("/readyz?verbose")).json()
    assert {check["detail"] for check in ready["checks"]} == {""}
    assert [check["name"] for check in ready["checks"] if check["ok"]] == [
        "store",
        "bus",
        "archive",
        "disk",
        "secrets",
    ]
    assert (await center.anyone.get("/healthz")).json()["status"] == "ok"
    version = (await center.anyone.get("/version")).json()
    assert (version["protocol"], version["oldest_protocol"]) == (1, 1)
