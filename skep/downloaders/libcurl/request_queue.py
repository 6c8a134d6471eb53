"""Hands requests from the event loop to the thread of a downloader, and results back.

Two deques and a descriptor that wakes the thread: neither side waits for the other, and every
request is answered, even if the thread has ended.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from skep.downloaders.libcurl.transfer import Done
from skep.downloaders.ports import Fetched
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome, Work


class RequestQueue:
    """`submit`, `tell` and `take_finished` are for the event loop's thread."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready
        self._inbox: deque[tuple[Work, Done]] = deque()
        #: Calls that the thread executes in its next round.
        self._orders: deque[Callable[[], None]] = deque()
        #: Finished downloads; the event loop takes them from the left.
        self.finished: deque[tuple[Done, Fetched]] = deque()
        self._announced = False
        self._asleep = False
        #: The thread accepts no more requests: `submit` returns them as lost.
        self._ended = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def submit(self, work: Work, done: Done) -> None:
        """Queue a request; the thread is woken only when it sleeps, and only once."""
        self._inbox.append((work, done))
        if self._ended:
            self._give_back_inbox()
            self._announce()
        elif self._asleep:
            self._asleep = False
            os.eventfd_write(self._wake_fd, 1)

    def tell(self, order: Callable[[], None]) -> None:
        """Let the thread execute this call first in its next round."""
        self._orders.append(order)
        os.eventfd_write(self._wake_fd, 1)

    def take_finished(self) -> list[tuple[Done, Fetched]]:
        """All results since the last call."""
        # In this order: a result that is added after the flag is reset is announced again.
        self._announced = False
        batch = []
        while self.finished:
            batch.append(self.finished.popleft())
        return batch

    def _announce(self) -> None:
        if self.finished and not self._announced:
            self._announced = True
            self._ready()

    def _give_back_inbox(self) -> None:
        """Two threads may call this concurrently: each request is popped by one of them."""
        while True:
            try:
                work, done = self._inbox.popleft()
            except IndexError:
                return
            self.finished.append((done, Fetched(lost_outcome(work))))


def lost_outcome(work: Work) -> Outcome:
    """The outcome of a request whose downloader has ended."""
    return Outcome(work.id, FailureClass.LOST, detail="the downloader was closed")
