"""The children of one run, and the requests that they share. Runs on the event loop.

Children are started when there is work for them and stay until the run is closed. A request that
times out or that crashes its child fails alone: the others go to another child. Nothing here
waits for user code.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from skep.downloaders.code.child_messages import End
from skep.downloaders.code.child_start import Child, start_child
from skep.downloaders.code.egress_proxy import EgressProxy
from skep.downloaders.code.inside.talk import Load
from skep.downloaders.code.isolation import Isolation
from skep.downloaders.code.limit_ceiling import Ceiling
from skep.downloaders.code.results import Keep, Results
from skep.downloaders.code.worker import ChildRequest, Worker
from skep.downloaders.curl_failures import short
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.ports import Fetched
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings
from skep.model.user_code import Code
from skep.runtime.clock import Clock

log = logging.getLogger(__name__)

TICK_SECONDS = 0.1
#: Seconds before code that could not be loaded is tried again.
REST_SECONDS = 2.0
#: Crashes of children during a request that ran with others, after which it is blamed.
TRIES = 3
#: Range of separate users for children of root, which no system assigns.
FIRST_UID, UIDS = 1_900_000_000, 100_000_000


@dataclass(frozen=True, slots=True)
class ChildrenOptions:
    """The options of the children of one kind."""

    kind: str
    clock: Clock
    egress: EgressPolicy
    isolation: Isolation
    #: Maximum number of children.
    workers: int
    #: Whether code that needs the network gets it.
    network: bool
    #: The upper bounds for the limits of the code.
    ceiling: Ceiling
    keep: Keep
    #: Gets what the code writes to stderr.
    wrote: Callable[[str], None] = lambda _: None


class CodeDownloader:
    """Runs one version of one code for one run."""

    def __init__(self, settings: RunSettings, code: Code, options: ChildrenOptions) -> None:
        limits = options.ceiling.applied(code.limits)
        self._limits = limits
        self._settings = settings
        self._code = code
        self._options = options
        self._time = limits.time or settings.time_limit
        self._output = settings.body_limit if limits.output is None else limits.output
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[ChildRequest] = deque()
        self._workers: list[Worker] = []
        self._ending: set[asyncio.Future[int]] = set()
        self._proxies: dict[Worker, EgressProxy] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._results = Results(
            settings, f"{options.kind} {code.version}", options.keep, self._output
        )
        self._active = 0
        self._fed = False
        self._closed = False
        self._tick: asyncio.TimerHandle | None = None
        self._unusable, self._rest_until = "", 0.0

    @property
    def active(self) -> int:
        return self._active

    def start(self, work: Work, done: Callable[[Fetched], None]) -> None:
        self._active += 1
        job = ChildRequest(work, done)
        if self._closed:
            self._loop.call_soon(self._fail, job, FailureClass.LOST, "the downloader was closed")
            return
        self._waiting.append(job)
        self._feed_soon()

    def recall(self) -> None:
        while self._waiting:
            self._loop.call_soon(self._fail, self._waiting.popleft(), FailureClass.LOST, "recalled")

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._tick is not None:
            self._tick.cancel()
        for worker in list(self._workers):
            self._waiting.extend(worker.sent.values())
            self._dismiss(worker)
        while self._waiting:
            self._fail(self._waiting.popleft(), FailureClass.LOST, "the downloader was closed")
        await self._results.settle()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*self._ending)

    # --- distribution ---

    def _feed_soon(self) -> None:
        if not self._fed:
            self._fed = True
            self._loop.call_soon(self._feed)

    def _feed(self) -> None:
        self._fed = False
        if self._waiting and self._resting():
            return
        for worker in self._workers:
            room = min(worker.room, len(self._waiting))
            if room > 0:
                jobs = [self._waiting.popleft() for _ in range(room)]
                worker.send(jobs, self._settings.headers)
        loading = self._starting or any(not worker.ready for worker in self._workers)
        if self._waiting and not loading and len(self._workers) < self._options.workers:
            self._grow()
        self._watch()

    def _resting(self) -> bool:
        """While the code cannot be loaded, every request fails immediately."""
        if not self._unusable or self._options.clock.monotonic() >= self._rest_until:
            return False
        while self._waiting:
            self._fail(self._waiting.popleft(), FailureClass.CODE, self._unusable)
        return True

    def _watch(self) -> None:
        if self._tick is None and not self._closed and (self._active or self._starting):
            self._tick = self._loop.call_later(TICK_SECONDS, self._look)

    def _look(self) -> None:
        """Ten times a second: find late requests, and requests that wait behind slow ones."""
        self._tick = None
        for worker in list(self._workers):
            if not worker.ready:
                self._look_at_loading(worker)
            elif late := worker.overdue(self._time):
                detail = f"the code had no result within {self._time:g} s"
                self._give_back(worker)
                self._dismiss(worker)
                for job in late:
                    self._fail(job, FailureClass.TIMEOUT, detail)
            else:
                self._waiting.extendleft(reversed(worker.take_stalled()))
        self._feed_soon()

    def _look_at_loading(self, worker: Worker) -> None:
        if self._options.clock.monotonic() - worker.opened > self._time:
            self._dismiss(worker)
            self._cannot(f"the code was not loaded within {self._time:g} s")

    # --- children ---

    def _grow(self) -> None:
        task = asyncio.ensure_future(self._start_worker())
        self._starting.add(task)
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("cannot start a process for user code: %s", error)
            self._cannot(f"cannot start the process for the code: {error}")
        self._feed_soon()

    async def _start_worker(self) -> None:
        options, limits = self._options, self._limits
        # Not from the seeded source: two children with the same user could kill each other.
        uid = FIRST_UID + secrets.randbelow(UIDS) if options.isolation.own_user else 0
        network = self._code.network and options.network
        # Never cancelled: the process must be ended after it was started.
        child = await asyncio.to_thread(
            start_child, options.isolation, limits.scratch, uid, network=network
        )
        if self._closed:
            await asyncio.to_thread(_end_unwanted, child)
            return
        worker = Worker(child, self._output, self, options.clock.monotonic)
        self._workers.append(worker)
        if child.listener is not None:
            self._proxies[worker] = EgressProxy(child.listener, options.egress)
            await self._proxies[worker].open()
        await worker.open(self._load(uid))

    def _load(self, uid: int) -> Load:
        limits, isolation = self._limits, self._options.isolation
        # The kernel counts per user: the agent's own user already has many processes.
        countable = isolation.boxed or isolation.own_user
        processes = limits.processes if countable else -1
        return Load(
            self._options.kind, self._code.source, self._code.version, uid,
            isolation.boxed, self._time, limits.memory, self._output,
            limits.scratch, limits.files, processes,
        )  # fmt: skip

    def _dismiss(self, worker: Worker) -> None:
        """End a child; its requests have been moved to other children."""
        worker.sent = {}
        worker.kill()
        if worker in self._workers:
            self._workers.remove(worker)
            self._ending.add(worker.reaped)
            worker.reaped.add_done_callback(self._ending.discard)
            if (proxy := self._proxies.pop(worker, None)) is not None:
                proxy.close()

    def _give_back(self, worker: Worker) -> None:
        """Return the requests of a child that ends for another reason, as far as known."""
        for job in reversed(worker.sent.values()):
            job.tries += worker.together
            if job.tries >= TRIES:
                detail = f"{job.tries} processes ended while this request ran in them"
                self._fail(job, FailureClass.CODE, detail)
            else:
                self._waiting.appendleft(job)
        worker.sent = {}

    # --- calls of workers ---

    def loaded(self) -> None:
        self._unusable = ""
        self._feed_soon()

    def unusable(self, worker: Worker, detail: str) -> None:
        self._dismiss(worker)
        self._cannot(short(detail))

    def answered(self, worker: Worker, job: ChildRequest, end: End) -> None:
        if end.messages:
            self._options.wrote(end.messages)
        self._results.deliver(job.work, end, lambda fetched: self._end(job, fetched))
        if self._waiting and worker.room > 0:
            self._feed_soon()

    def gone(self, worker: Worker, detail: str, *, blame: bool) -> None:
        """If the child runs one request at a time, its first request is blamed."""
        log.warning("a process with user code of kind %s ended: %s", self._options.kind, detail)
        if blame and worker.ready and worker.sent and not worker.together:
            serial = next(iter(worker.sent))
            guilty = worker.sent.pop(serial)
            self._fail(guilty, FailureClass.CODE, f"{detail} while it worked on this request")
        elif not worker.ready:
            self._cannot(f"{detail} while the code was being loaded")
        self._give_back(worker)
        self._dismiss(worker)
        self._feed_soon()

    def _cannot(self, detail: str) -> None:
        """Fail all requests, unless the code works in another child."""
        if any(worker.ready for worker in self._workers):
            return
        self._unusable = detail
        self._rest_until = self._options.clock.monotonic() + REST_SECONDS
        self._resting()

    # --- ends ---

    def _fail(self, job: ChildRequest, failure: FailureClass, detail: str) -> None:
        spent = int((self._options.clock.monotonic() - job.began) * 1e6) if job.began else 0
        outcome = Outcome(job.work.id, failure, detail=short(detail), elapsed_us=spent)
        self._end(job, Fetched(outcome))

    def _end(self, job: ChildRequest, fetched: Fetched) -> None:
        self._active -= 1
        try:
            job.done(fetched)
        except Exception:
            log.exception("the receiver of a result failed")


def _end_unwanted(child: Child) -> None:
    """End a child that started after its run was closed."""
    if child.listener is not None:
        child.listener.close()
    child.kill()
    child.reap()
