"""Requests that wait for their time while center and agents are killed (fault 39).

The site says when each page may be asked for again and writes down every visit. A visit
belongs to the last lease of its request before it; that lease must not be older than what
was promised after the failure before it, and must have begun before the request expired.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from skep.model.states import BlockState, RequestState
from skep.store.sql.schema.blocks import block_history
from skep.store.sql.schema.requests import attempts, requests
from skep.testing.fleet import Fleet, tell
from skep.testing.killer import Killer, seed_from
from skep.testing.site import Answer, DemoSite, answer

#: Of the run: seconds before the first retry, of which up to half may be taken off, and most.
FIRST, CAP = 0.8, 1.6
#: Work that was lost must not be called dead while processes die this often.
PATIENT = {"SKEP_CENTER_ALIVE_AFTER": "5", "SKEP_LANES_LEASE_LIMIT": "100"}
FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
NEVER = math.inf
#: Seconds that the site asks for where the page never comes.
LONG = 30


class Visit(NamedTuple):
    """When a page was asked for, and how long the site wanted to be left alone then."""

    at: float
    asked: int


class LateSite(DemoSite):
    """Each page is there some time after its first visit. Even pages say how long that is
    (503 with Retry-After), odd ones only fail (500)."""

    def __init__(self, pages: int) -> None:
        super().__init__(pages)
        #: Path -> seconds from its first visit on.
        self.closed: dict[str, float] = {}
        self.visits: defaultdict[str, list[Visit]] = defaultdict(list)

    def respond(self, target: str) -> Answer:
        now = time.time()
        visits = self.visits[target]
        left = (visits[0].at if visits else now) + self.closed[target] - now
        even = int(target.rpartition("/")[2]) % 2 == 0
        asked = math.ceil(min(left, LONG)) if even and left > 0 else 0
        visits.append(Visit(now, asked))
        if left <= 0:
            return super().respond(target)
        self.hits[target] += 1
        return _refusal(asked) if even else answer("", 500)


def _refusal(seconds: int) -> Answer:
    made = answer("", 503)
    head = made.head.replace(b"\r\n\r\n", f"\r\nRetry-After: {seconds}\r\n\r\n".encode())
    return Answer(head, made.body)


class Tried(NamedTuple):
    """A failed attempt, as the store has it."""

    at: float
    nth: int


class Story(NamedTuple):
    """All that the store knows of one request; leases in the order of time."""

    state: RequestState
    expires_at: float
    failed: list[Tried]
    leases: list[float]


def stories(store_url: str) -> dict[str, Story]:
    """By URL, read past the center."""
    engine = sa.create_engine(store_url)
    leased: defaultdict[int, list[float]] = defaultdict(list)
    tried: defaultdict[int, list[Any]] = defaultdict(list)
    columns = (attempts.c.request, attempts.c.block, attempts.c.at, attempts.c.failure)
    try:
        with engine.connect() as connection:
            using = block_history.c.state == BlockState.USING
            for block, at in connection.execute(
                sa.select(block_history.c.block, block_history.c.at).where(using)
            ):
                leased[block].append(at)
            for row in connection.execute(sa.select(*columns).order_by(attempts.c.at)):
                tried[row.request].append(row)
            rows = connection.execute(sa.select(requests)).all()
    finally:
        engine.dispose()
    found = {}
    for row in rows:
        blocks = {row.block, *(one.block for one in tried[row.id])}
        times = [one.at for one in tried[row.id] if one.failure]
        found[row.uri] = Story(
            RequestState(row.state),
            row.expires_at or NEVER,
            [Tried(at, nth) for nth, at in enumerate(times)],
            sorted(at for block in blocks for at in leased.get(block, ())),
        )
    return found


def promises(story: Story, visits: list[Visit]) -> list[tuple[float, float]]:
    """(from, until): after a failure was stored no agent may ask again before that moment."""
    found = []
    for tried in story.failed:
        last = next(visit for visit in reversed(visits) if visit.at <= tried.at)
        wait = max(last.asked, min(CAP, FIRST * 2**tried.nth) / 2)
        found.append((tried.at, last.at + wait))
    return found


class Judged(NamedTuple):
    """What must all be nothing."""

    early: int
    after_expiry: int
    done_after_expiry: int


def judge(story: Story, visits: list[Visit]) -> Judged:
    kept = promises(story, visits)
    early = after = 0
    for visit in visits:
        lease = story.leases[bisect_right(story.leases, visit.at) - 1]
        early += any(since < lease < until for since, until in kept)
        after += lease >= story.expires_at
    ended = story.leases[-1] if story.state is RequestState.DONE else 0.0
    return Judged(early, after, int(ended >= story.expires_at))


def test_the_judge_sees_what_is_early_and_what_is_late() -> None:
    """Fault 39: what would be wrong is found: asked again after half of the time that the site
    wanted; leased, asked for and done after its end."""
    first, wanted = Visit(10.0, 4), Tried(10.5, 0)
    assert judge(
        Story(RequestState.DONE, NEVER, [wanted], [9.0, 14.1]), [first, Visit(14.2, 0)]
    ) == (Judged(0, 0, 0))
    early = Story(RequestState.DONE, NEVER, [wanted], [9.0, 12.0])
    assert judge(early, [first, Visit(12.1, 0)]) == Judged(1, 0, 0)
    late = Story(RequestState.DONE, 14.0, [wanted], [9.0, 14.1])
    assert judge(late, [first, Visit(14.2, 0)]) == Judged(0, 1, 1)
    # A lease that was lost before its failure was known: asked again, and rightly so.
    unheard = Story(RequestState.DONE, NEVER, [], [9.0, 11.0])
    assert judge(unheard, [first, Visit(11.2, 0)]) == Judged(0, 0, 0)


async def offer_all(fleet: Fleet, site: LateSite, count: int, rng: Random, span: float) -> None:
    """A quarter each: never there and soon too old; there before it is too old; without an
    end, twice."""
    size = 25
    for number, _ in enumerate(range(0, count, size)):
        dies, lives = number % 4 == 0, number % 4 == 1
        urls = fleet.urls(size)
        for url in urls:
            closed = NEVER if dies else rng.uniform(0.5, span)
            site.closed[url.removeprefix(site.url)] = closed
        expiry = {"expires_in": rng.uniform(0.5, span)} if dies else {}
        await fleet.client.offer(urls, **({"expires_in": 600.0} if lives else expiry))


@pytest.mark.parametrize(
    ("count", "kills", "span"),
    [(300, 2, 1.5), pytest.param(10_000, 20, 60.0, marks=pytest.mark.slow)],
)
async def test_delayed_requests_under_kills(
    tmp_path: Path, count: int, kills: int, span: float
) -> None:
    """Fault 39: center and agent are killed while all requests wait for a retry, for their
    page or for their end: fired early 0, lost 0, acted on after their expiry 0."""
    settings = {"retries": 1000, "backoff_first": FIRST, "backoff_cap": CAP}
    fleet = Fleet(tmp_path, PATIENT, pages=count, settings=settings)
    fleet.site = site = LateSite(count)
    async with fleet:
        await fleet.agent("a", FEW_AT_ONCE)
        seed = seed_from(os.environ)
        killer = Killer([fleet.center, *fleet.agents], seed)
        striking = asyncio.create_task(killer.strike(kills, gap=(0.3, span / kills + 0.5)))
        await offer_all(fleet, site, count, Random(seed), span)
        await striking
        ledger = await fleet.until_all_ended(span + 60)
        assert await fleet.client.ledger(audit=True) == ledger
        known = await asyncio.to_thread(stories, fleet.center.store_url)
    lost = [url for url in fleet.client.acknowledged.urls() if url not in known]
    paths = {url: url.removeprefix(site.url) for url in known}
    verdicts = [judge(story, site.visits[paths[url]]) for url, story in known.items()]
    sums = Judged(*(sum(one) for one in zip(*verdicts, strict=True)))
    delayed = sum(bool(story.failed) for story in known.values())
    tell(
        "39",
        **killer.figures(),
        requests=count,
        delayed=delayed,
        waits=sum(len(story.failed) for story in known.values()),
        lost=len(lost),
        done=ledger.done,
        expired=ledger.expired,
        **sums._asdict(),
    )
    assert (len(known), lost, sums) == (count, [], Judged(0, 0, 0))
    # Whatever was killed when: what could be had was had, and the rest has ended by its time.
    assert (ledger.done, ledger.expired, ledger.dead) == (count * 3 // 4, count // 4, 0)
    assert delayed > count / 2, "else little was tried here"
