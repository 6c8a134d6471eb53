"""One set-up from start to evidence: submit, kill by progress, restart, wait, count.

A kill follows after a number of done requests, so that every kill interrupts work. Just before it
the ledger shows how many are leased: at most that many may be done twice.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from bench.figures import Wrong, neat
from bench.kill.client import Client
from bench.kill.evidence import Sampling, gather
from bench.kill.fleet import Fleet, Witness

RUN = "ordeal"
LATENCY = 0.1
LOOK = 0.03
#: Seconds without progress after which something hangs.
PATIENCE = 60.0
READY_BAR = 2.0
#: Retries are for failures of hosts; a kill must not need them.
RUN_SETTINGS = {"settings": {"block_size": 20, "host_concurrency": 64, "retries": 0}}


@dataclass(slots=True)
class Ordeal:
    """The state of one set-up while it runs."""

    fleet: Fleet
    store_url: str
    requests: int
    kills: int
    rng: Random
    seed: int
    done: int = 0
    leased: list[int] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)

    def run(self, folder: Path) -> dict[str, Any]:
        begun = time.monotonic()
        # A stack, because each is ended even if ending another fails.
        with ExitStack() as ending:
            witness = Witness(self.requests, LATENCY)
            ending.callback(witness.close)
            ending.callback(self.fleet.stop)
            self.fleet.start()
            self.fleet.door.call("PUT", f"/api/v1/runs/{RUN}", RUN_SETTINGS)
            urls = [f"{witness.url}/page/{number}" for number in range(self.requests)]
            client = Client(self.fleet, RUN, urls, folder / "promised.txt", lambda: self.done)
            client.start()
            ending.callback(client.stop)
            self._kill_all()
            stalled = self._stalls()
            seconds = time.monotonic() - begun
            return {**self._told(witness, client, seconds), "stalled": stalled}

    def _stalls(self) -> str:
        """Why the end was not reached, "" if it was: losses are then counted."""
        try:
            self._wait_for(self.requests)
        except Wrong as wrong:
            return str(wrong)
        return ""

    def _kill_all(self) -> None:
        names = self.fleet.victims
        victims = [names[number % len(names)] for number in range(self.kills)]
        self.rng.shuffle(victims)
        for number, victim in enumerate(victims):
            ledger = self._wait_for(self.requests * (number + 1) // (self.kills + 2))
            self.leased.append(ledger["leased"])
            self.fleet.kill(victim)
            self.killed[victim] += 1
            time.sleep(self.rng.uniform(0.0, 0.4))
            self.fleet.revive(victim)

    def _wait_for(self, done: int) -> dict[str, int]:
        """The first ledger with this number of done requests."""
        changed = time.monotonic()
        while True:
            ledger = self.fleet.ledger()
            if ledger is not None and ledger["done"] > self.done:
                self.done = ledger["done"]
                changed = time.monotonic()
            if ledger is not None and self.done >= done:
                return ledger
            if time.monotonic() - changed > PATIENCE:
                raise Wrong(f"no progress: {ledger}\n{self.fleet.tails()}")
            time.sleep(LOOK)

    def _some(self) -> Sampling:
        return Sampling(self.requests, Random(self.seed))

    def _told(self, witness: Witness, client: Client, seconds: float) -> dict[str, Any]:
        client.join(PATIENCE)
        hits = {path: n for path, n in witness.hits().items() if path.startswith("/page/")}
        found = gather(self.fleet, self.store_url, client.promised(), hits, self._some())
        restarts = self.fleet.ready_after[1:] or self.fleet.ready_after
        allowed = sum(self.leased)
        good = found.lost == 0 and found.repeated <= allowed and max(restarts) < READY_BAR
        return {
            **asdict(found),
            "ok": good and found.accepted == self.requests,
            "kills": dict(self.killed),
            "leased_at_kills": allowed,
            "leased_each_median": median(self.leased) if self.leased else 0,
            "ready_after": {"median": neat(median(restarts)), "max": neat(max(restarts))},
            "client_repeats": client.repeats,
            "seconds": neat(seconds),
        }
