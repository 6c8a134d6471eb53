"""A steady load for a center: runs that start and end, jobs that fire, a crawl, queries.

One thread does everything in small steps, with a new connection for each call, so that connections
come and go too. Each ended run is compared with its submissions before retention deletes its rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.centers import CenterDoor
from bench.figures import Wrong, check

PAGES = 40
#: Seconds between two submissions, two runs, two crawls and two queries.
FEED_EVERY, RUN_EVERY, CRAWL_EVERY, ASK_EVERY = 0.5, 6.0, 20.0, 0.25
#: Pages of each submission that exist; one more does not. Each twelfth expires soon.
GOOD = 5
#: Seconds after which a run with open requests is stuck.
STUCK = 90.0
SETTINGS = {"block_size": 10, "host_concurrency": 8, "retries": 1, "backoff_first": 0.5}
#: Queries of users and machines; the latency of callers is measured with them.
ASKED = (
    "/api/v1/ledger",
    "/api/v1/agents",
    "/api/v1/runs?limit=20",
    "/metrics",
    "/readyz?verbose",
    "/api/v1/jobs",
    "/api/v1/failures?limit=20",
)


@dataclass(slots=True)
class Rolling:
    """One run: its submissions, and the time of the last."""

    name: str
    offered: int = 0
    fed_at: float = 0.0


@dataclass(slots=True)
class Load:
    """Call `step` repeatedly; the caller decides about the pauses."""

    door: CenterDoor
    site: str
    clock: Callable[[], float] = time.monotonic
    #: (time, milliseconds) of each query.
    waits: list[tuple[float, float]] = field(default_factory=list)
    runs: int = 0
    crawls: int = 0
    offered: int = 0
    _open: list[Rolling] = field(default_factory=list)
    _due: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        """Create the jobs: one with a schedule, and the crawl."""
        every = {"every": 5, "overlap": "parallel"}
        pages = [f"{self.site}/page/{number}" for number in range(10)]
        crawl = {"path": "demo_pages.py:DemoPages", "arguments": {"start_urls": f"{self.site}/"}}
        jobs: dict[str, dict[str, Any]]
        jobs = {"steady": {"requests": pages, "schedule": every}, "crawl": {"spider": crawl}}
        for name, rest in jobs.items():
            self.door.call("PUT", f"/api/v1/jobs/{name}", {"name": name, **rest})

    def step(self) -> None:
        """Do everything that is due."""
        if self._is_due("run", RUN_EVERY):
            self._open_run()
        if self._is_due("feed", FEED_EVERY):
            self._feed(self._open[-1])
        if self._is_due("crawl", CRAWL_EVERY):
            self.door.call("POST", "/api/v1/jobs/crawl/run")
            self.crawls += 1
        if self._is_due("ask", ASK_EVERY):
            self._ask(ASKED[len(self.waits) % len(ASKED)])
        for rolling in self._open[:-1]:
            self._close_if_ended(rolling)

    def finish(self) -> dict[str, int]:
        """Stop the schedule, wait for the end of all requests, return the ledger."""
        self.door.call("DELETE", "/api/v1/jobs/steady")
        deadline = self.clock() + STUCK
        while self._open:
            for rolling in list(self._open):
                self._close_if_ended(rolling)
            time.sleep(0.1)
        while (ledger := self._ledger())["open"]:
            if self.clock() > deadline:
                raise Wrong(f"after {STUCK:.0f} s without new work: {ledger}")
            time.sleep(0.1)
        check(ledger, self._ledger(audit=True), "the ledger, counted row by row")
        check(0, ledger["unaccounted"], "requests unaccounted for")
        return ledger

    def _is_due(self, what: str, every: float) -> bool:
        now = self.clock()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + every
        return True

    def _open_run(self) -> None:
        rolling = Rolling(f"soak-{self.runs}")
        self.door.call("PUT", f"/api/v1/runs/{rolling.name}", {"settings": SETTINGS})
        self._open.append(rolling)
        self.runs += 1

    def _feed(self, rolling: Rolling) -> None:
        """The query makes each URL new for its run."""
        first = rolling.offered
        paths = [f"/page/{(first + n) % PAGES}?{first + n}" for n in range(GOOD)]
        asked: list[dict[str, Any]] = [{"uri": f"{self.site}{path}"} for path in paths]
        asked.append({"uri": f"{self.site}/nowhere?{first}"})
        if first % 12 == 0:
            asked[0]["expires_in"] = 0.05
        self.door.call("POST", f"/requestqueue/{rolling.name}", asked)
        rolling.offered += len(asked)
        self.offered += len(asked)
        rolling.fed_at = self.clock()

    def _ask(self, path: str) -> None:
        begun = time.perf_counter()
        self.door.raw(path)
        self.waits.append((self.clock(), (time.perf_counter() - begun) * 1000))

    def _close_if_ended(self, rolling: Rolling) -> None:
        """When all requests have ended: read them, finish the run, compare."""
        path = f"/api/v1/runs/{rolling.name}"
        ledger = self.door.call("GET", path)["ledger"]
        if any(ledger[state] for state in ("waiting", "queued", "leased", "delayed")):
            if self.clock() - rolling.fed_at > STUCK:
                raise Wrong(f"run {rolling.name} is stuck: {ledger}")
            return
        check(rolling.offered, ledger["accepted"], f"requests of {rolling.name}")
        ended = sum(ledger[state] for state in ("done", "dead", "expired"))
        check(rolling.offered, ended, f"ended requests of {rolling.name}")
        self._collect(rolling.name)
        self.door.call("POST", f"{path}/finish")
        self._open.remove(rolling)

    def _collect(self, run: str) -> None:
        queue = f"/requestqueue/{run}"
        while blocks := self.door.call("GET", f"{queue}?limit=100")["blocks"]:
            ids = {"blocks": [block["id"] for block in blocks]}
            self.door.call("POST", f"{queue}/collected", ids)

    def _ledger(self, *, audit: bool = False) -> dict[str, int]:
        found = self.door.call("GET", f"/api/v1/ledger{'?audit=true' if audit else ''}")
        counts: dict[str, int] = found["ledger"]
        still = sum(counts[state] for state in ("waiting", "queued", "leased", "delayed"))
        return {**counts, "open": still, "unaccounted": found["unaccounted"]}
