"""The client: submits requests during the kills, and records what was acknowledged.

A batch counts as accepted when the center has answered; it is then written to a file and synced, as
a careful client would do. A batch without an answer is sent again unchanged.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from bench.kill.fleet import UNREACHABLE, Fleet

BATCH = 100
PAUSE = 0.05


class Client(threading.Thread):
    """Keeps at most `ahead` requests submitted beyond those that are done."""

    def __init__(
        self, fleet: Fleet, run: str, urls: list[str], file: Path, done: Callable[[], int]
    ) -> None:
        super().__init__(name="client", daemon=True)
        self._fleet = fleet
        self._run_name = run
        self._urls = urls
        self._file = file
        self._done = done
        self._ahead = max(200, len(urls) // 5)
        self._ending = threading.Event()
        #: Repeated calls.
        self.repeats = 0
        self.accepted = 0

    def run(self) -> None:
        with self._file.open("a") as kept:
            while self.accepted < len(self._urls) and not self._ending.is_set():
                if self.accepted - self._done() >= self._ahead or not self._hand_in():
                    self._ending.wait(PAUSE)
                    continue
                batch = self._urls[self.accepted : self.accepted + BATCH]
                kept.write("".join(f"{url}\n" for url in batch))
                kept.flush()
                os.fsync(kept.fileno())
                self.accepted += len(batch)

    def _hand_in(self) -> bool:
        batch = self._urls[self.accepted : self.accepted + BATCH]
        try:
            self._fleet.door.call("POST", f"/requestqueue/{self._run_name}", batch)
        except UNREACHABLE:
            self.repeats += 1
            return False
        return True

    def stop(self) -> None:
        self._ending.set()
        self.join()

    def promised(self) -> list[str]:
        """Every acknowledged URL, as the file has it."""
        return self._file.read_text().split()
