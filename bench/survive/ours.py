"""Our crawl under kill -9: `skep center`, two `skep agent` and `skep run`.

Each is restarted with its command line, as by a supervisor, and the spider continues with
`--resume`. A kill follows after a number of done pages.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.centers import clean_environment
from bench.figures import Wrong, check, neat
from bench.kill.fleet import AGENTS, Fleet
from bench.processes import ROOT

RUN = "crawl"
LOOK = 0.02
#: Seconds without progress after which something hangs.
PATIENCE = 60.0
PART = 10_000
SPIDER = ROOT / "bench" / "survive" / "spider.py"
#: In turn, as in a fleet.
VICTIMS = ("spider", AGENTS[0], "center", "spider", AGENTS[1], "center")


@dataclass(slots=True)
class Ours:
    """The state of one crawl while it runs."""

    folder: Path
    start: str
    pages: int
    kills: int
    killed: Counter[str] = field(default_factory=Counter)
    done: int = 0
    _fleet: Fleet = field(init=False)
    _spider: subprocess.Popen[bytes] | None = None

    def crawl(self) -> dict[str, Any]:
        """The whole crawl; returns what the center has stored at the end, row by row."""
        self._fleet = Fleet(self.folder, {})
        begun = time.monotonic()
        with ExitStack() as ending:
            ending.callback(self._fleet.stop)
            self._fleet.start()
            ending.callback(self._end_spider)
            self._begin_spider("--run", RUN)
            for number in range(self.kills):
                self._wait_for(self.pages * (number + 1) // (self.kills + 2))
                self._kill(VICTIMS[number % len(VICTIMS)])
            self._wait_for(self.pages)
            check(0, self._spider_ended(), f"exit code of the spider:\n{self._said()}")
            seconds = time.monotonic() - begun
            return {**self._kept(), "kills": dict(self.killed), "seconds": neat(seconds)}

    def _kill(self, victim: str) -> None:
        self.killed[victim] += 1
        if victim == "spider":
            assert self._spider is not None
            self._spider.kill()
            self._spider.wait()
            self._begin_spider("--resume", RUN)
        else:
            self._fleet.kill(victim)
            self._fleet.revive(victim)

    def _begin_spider(self, *how: str) -> None:
        door = self._fleet.door
        token = self.folder / "center" / "admin.token"
        reach = ["--center", door.url, "--token-file", str(token)]
        command = [sys.executable, "-m", "skep", "run", str(SPIDER), "-a", f"url={self.start}"]
        with (self.folder / "spider.log").open("ab") as log:
            self._spider = subprocess.Popen(
                [*command, *reach, *how],
                cwd=ROOT,
                env=clean_environment(),
                stdout=log,
                stderr=log,
            )

    def _end_spider(self) -> None:
        if self._spider is not None and self._spider.poll() is None:
            self._spider.kill()
            self._spider.wait()

    def _spider_ended(self) -> int:
        assert self._spider is not None
        return self._spider.wait(PATIENCE)

    def _said(self) -> str:
        return (self.folder / "spider.log").read_text(errors="replace")[-1500:]

    def _wait_for(self, done: int) -> None:
        changed = time.monotonic()
        while self.done < done:
            ledger = self._fleet.ledger()
            if ledger is not None and ledger["done"] > self.done:
                self.done = ledger["done"]
                changed = time.monotonic()
            if time.monotonic() - changed > PATIENCE:
                raise Wrong(f"no progress: {ledger}\n{self._said()}\n{self._fleet.tails()}")
            time.sleep(LOOK)

    def _kept(self) -> dict[str, Any]:
        ledger = self._fleet.ledger(audit=True)
        assert ledger is not None
        check(0, ledger["unaccounted"], "requests missing in the ledger")
        urls: list[str] = []
        after = 0
        ask = f"/api/v1/runs/{RUN}/items?limit={PART}&after="
        while page := self._fleet.door.call("GET", f"{ask}{after}")["items"]:
            # The front page, which the server refuses, has no title and does not count.
            urls += [item["data"]["url"] for item in page if item["data"]["title"]]
            after = page[-1]["id"]
        return {"items": len(urls), "unique": len(set(urls)), "done": ledger["done"]}
