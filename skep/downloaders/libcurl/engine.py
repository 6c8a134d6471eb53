"""The thread that downloads for one run: libcurl, its connections, cookies and politeness.

Requests arrive in one deque, results leave in another; the thread uses nothing else of the
process. It waits only for its sockets, and every request that it accepted is answered, whatever
happens.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable

import pycurl

from skep.archive.content_decoding import BadEncoding, OverLimit
from skep.downloaders.curl_failures import CurlFailure, classify, cut_of, short
from skep.downloaders.libcurl.connections import Connections, EngineOptions
from skep.downloaders.libcurl.egress_routes import EgressRoutes, Next
from skep.downloaders.libcurl.host_queue import HostQueue
from skep.downloaders.libcurl.request_headers import BadHeader
from skep.downloaders.libcurl.request_queue import lost_outcome
from skep.downloaders.libcurl.response_head import (
    HEAD_LIMIT,
    NO_HEAD,
    Head,
    is_whole,
    retry_after,
    upgrade_in,
)
from skep.downloaders.libcurl.slot import Slot
from skep.downloaders.libcurl.transfer import REDIRECTS, BadRequest, Done, Transfer
from skep.downloaders.ports import Fetched
from skep.downloaders.target_url import BadTarget
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings

log = logging.getLogger(__name__)

LONGEST_SLEEP = 30.0
#: Failures of the connection, not of the data.
BROKEN_OFF = frozenset({FailureClass.NETWORK, FailureClass.TIMEOUT})
#: Results of one batch while sockets are busy.
BATCH = 100
#: Maximum number of rounds for which results are held: one long body must not delay the rest.
HELD_ROUNDS = 8
FIRST_ERROR_STATUS = 400
#: Errors of libcurl when we stop reading a body.
_STOPPED = frozenset({pycurl.E_WRITE_ERROR})
_ASKS_TO_WAIT = frozenset({429, 503})

_FINE: CurlFailure = (None, "")


def _discard() -> None:
    """Replaces `ready` after the end."""


class CurlEngine(Connections):
    """Belongs to one downloader. `submit` and `stop` are for the event loop's thread."""

    def __init__(
        self, run: str, settings: RunSettings, options: EngineOptions, ready: Callable[[], None]
    ) -> None:
        super().__init__(settings, options, ready)
        #: Connections that the policy refused.
        self.refused = 0
        self._stopping = False
        self._gate: HostQueue[Transfer] = HostQueue(settings.host_concurrency, settings.host_delay)
        self._busy = False
        self._held = 0
        #: Bytes after which content rules need no more of a body; 0 = they need all of it.
        self._stops_at = settings.content.stops_at if settings.content else 0
        self._body_limit = min(settings.body_limit, self._stops_at or sys.maxsize)
        self._thread = threading.Thread(target=self._main, name=f"http {run}", daemon=True)
        self._thread.start()

    # --- called by the event loop's thread ---

    def pace(self, site: str, spacing: float) -> None:
        """Set the minimum seconds between two starts on this host, redirects included."""
        self._gate.pace(site, spacing)

    def recall(self) -> None:
        """Return requests that have not started as lost."""
        self._give_back_inbox()
        self.tell(self._recall)

    def stop(self) -> None:
        """End the thread; blocks until it has ended, so call it in an executor."""
        self._stopping = True
        os.eventfd_write(self._wake_fd, 1)
        self._thread.join()
        os.close(self._wake_fd)
        self._ready = _discard  # it refers to the owner of this engine

    # --- the thread ---

    def _main(self) -> None:
        try:
            self._open()
            while not self._stopping:
                self._round()
        except Exception:
            log.exception("a download thread failed; its requests are returned as lost")
        finally:
            self._ended = True
            self._abort_all()
            self._announce()

    def _round(self) -> None:
        """One round: accept requests, start due ones, wait, process ended ones, return results."""
        while self._orders:
            self._orders.popleft()()
        while self._inbox:
            self._accept(*self._inbox.popleft())
        self._launch_all()
        hold = self._holds_results()
        if not hold:
            self._announce()
        self._asleep = True
        # A request that arrived before the flag was set has not woken this thread, and results
        # that are held for a larger batch must not wait for a socket.
        at_once = self._inbox or self._orders or self._stopping or hold
        self._busy = self._wait(0.0 if at_once else self._longest_wait())
        self._asleep = False
        self._reap()

    def _holds_results(self) -> bool:
        """Whether to wait for more results: while sockets are busy, for a few rounds."""
        enough = len(self.finished) >= BATCH or self._held >= HELD_ROUNDS
        if enough or not self._busy or not self.finished:
            self._held = 0
            return False
        self._held += 1
        return True

    def _longest_wait(self) -> float:
        due = self._gate.next_due()
        if due is None or len(self._running) >= self._room:
            return LONGEST_SLEEP
        return min(max(due - self._now(), 0.0), LONGEST_SLEEP)

    def _accept(self, work: Work, done: Done) -> None:
        try:
            transfer = self._new_transfer(work, done)
        except (BadTarget, BadHeader, BadRequest) as error:
            outcome = Outcome(work.id, FailureClass.CONTENT, detail=short(str(error)))
            self.finished.append((done, Fetched(outcome)))
            return
        self._gate.offer(transfer.site, transfer)

    def _new_transfer(self, work: Work, done: Done) -> Transfer:
        if self._bad_run:
            raise BadHeader(self._bad_run)
        if work.session and self._routes is None:
            self._open_egress_routes()
        return Transfer(work, done, self._outgoing)

    def _launch_all(self) -> None:
        now = self._now()
        while len(self._running) < self._room:
            transfer = self._gate.take(now)
            if transfer is None:
                break
            if self._routes is None:
                slot = self._free.pop() if self._free else Slot(self._slot_options, self._free)
            elif (found := self._by_session(self._routes, transfer, now)) is not None:
                slot = found
            else:
                continue
            transfer.began = now
            try:
                slot.aim(transfer)
            except (pycurl.error, ValueError, TypeError) as error:
                self._refuse(slot, transfer, error)
                continue
            self._running.add(slot)
            # This only sets libcurl's timer to "now"; the poller's wait does the work, and ended
            # transfers are processed before the thread can sleep again.
            self._multi.add_handle(slot.curl)

    def _by_session(self, routes: EgressRoutes, transfer: Transfer, now: float) -> Slot | None:
        """None when it waits for a redial, or ended before it could start."""
        found = routes.outfit(transfer, now)
        if isinstance(found, Slot):
            return found
        if found is None:
            self._gate.leave(transfer.site, now)
        else:
            self.refused += found[0] is FailureClass.BLOCKED and transfer.session is not None
            self._ground(transfer, *found)
        return None

    def _refuse(self, slot: Slot, transfer: Transfer, error: Exception) -> None:
        """libcurl refuses the request, for example credentials with a NUL character."""
        slot.close()
        self._ground(transfer, FailureClass.CONTENT, f"cannot send the request: {error}")

    def _ground(self, transfer: Transfer, failure: FailureClass | None, detail: str) -> None:
        """End it without sending it."""
        self._gate.leave(transfer.site, self._now())
        if self._routes is not None:
            self._routes.leave(transfer)
        outcome = Outcome(transfer.work.id, failure or "", detail=short(detail))
        self.finished.append((transfer.done, Fetched(outcome)))

    def _reap(self) -> None:
        left = 1
        while left:
            left, ended, failed = self._multi.info_read()
            for curl in ended:
                self._land(curl.slot, 0, "")
            for curl, number, message in failed:
                self._land(curl.slot, number, message)

    def _land(self, slot: Slot, number: int, message: str) -> None:
        """A hop has ended: start the next one, or report the result of the request."""
        transfer = slot.transfer
        now = self._now()
        self._multi.remove_handle(slot.curl)
        self._running.discard(slot)
        self._gate.leave(transfer.site, now)
        transfer.elapsed += now - transfer.began
        goes_on = False
        try:
            goes_on = self._conclude(slot, transfer, number, message)
        except Exception as error:
            log.exception("unexpected error at the end of a download")
            outcome = Outcome(transfer.work.id, FailureClass.CODE, detail=short(repr(error)))
            self.finished.append((transfer.done, Fetched(outcome)))
        self._put_back(slot)
        if self._routes is not None:
            if not goes_on:
                self._routes.leave(transfer)
            self._routes.sweep()

    def _put_back(self, slot: Slot) -> None:
        if slot.spoiled:
            slot.close()
        else:
            slot.home.append(slot)

    def _head_of(self, slot: Slot, number: int, message: str) -> Head:
        """NO_HEAD when the connection broke inside the headers: the rest is unknown. A response
        that libcurl refused is used as far as it came."""
        if not number or is_whole(slot.lines):
            return slot.head
        failure, _ = classify(number, message, self._settings.time_limit)
        return NO_HEAD if failure in BROKEN_OFF else slot.head

    def _conclude(self, slot: Slot, transfer: Transfer, number: int, message: str) -> bool:
        """Whether the request continues."""
        head = self._head_of(slot, number, message)
        transfer.sent += slot.curl.getinfo(pycurl.REQUEST_SIZE) + len(transfer.body)
        transfer.received += len(head.raw) + slot.wire
        followed = False
        failure, detail = self._trouble(slot, head, number, message)
        if self._routes is not None and transfer.session is not None:
            ruling = self._routes.judge(slot, transfer, transfer.session, head, number)
            if ruling is Next.AGAIN:
                self._gate.offer(transfer.site, transfer, first=True)
            if isinstance(ruling, Next):
                return True
            failure, detail = ruling or (failure, detail)
        if failure is None and head.status in REDIRECTS and self._settings.redirects:
            followed, failure, detail = self._redirect(slot, transfer, head)
        elif failure is None and transfer.target.login and transfer.prove(head):
            self._gate.offer(transfer.site, transfer, first=True)
            followed = True
        if not followed:
            self._report(slot, transfer, head, failure, detail)
        return followed

    def _trouble(self, slot: Slot, head: Head, number: int, message: str) -> CurlFailure:
        """Failures of the transfer, independent of the status."""
        if slot.refused and not head.status and number:
            self.refused += 1
            return FailureClass.BLOCKED, slot.refused
        if slot.trouble is not None and (number in _STOPPED or not number):
            return self._stopped(slot.trouble, head)
        if number and not upgrade_in(slot.lines):
            return classify(number, message, self._settings.time_limit)
        if odd := _oddity(slot, head):
            return odd
        try:
            slot.finish_body()
        except BadEncoding as error:
            return FailureClass.CONTENT, str(error)
        return _FINE

    def _stopped(self, trouble: BadEncoding | OverLimit, head: Head) -> CurlFailure:
        """We stopped reading: the body is too large, not as declared, or not needed."""
        if head.status in REDIRECTS and self._settings.redirects:
            return _FINE
        if isinstance(trouble, BadEncoding):
            return FailureClass.CONTENT, str(trouble)
        if 0 < self._stops_at <= self._settings.body_limit:
            return _FINE
        limit = self._settings.body_limit
        return FailureClass.LIMIT, f"the body exceeds the limit of {limit} bytes"

    def _redirect(
        self, slot: Slot, transfer: Transfer, head: Head
    ) -> tuple[bool, FailureClass | None, str]:
        """(whether it continues, failure, detail)."""
        location = head.first("location")
        if not location:
            return False, None, ""
        if transfer.hops >= self._settings.redirects:
            return False, FailureClass.CONTENT, f"more than {self._settings.redirects} redirects"
        if transfer.elapsed >= self._settings.time_limit:
            return False, *classify(pycurl.E_OPERATION_TIMEDOUT, "", self._settings.time_limit)
        address = slot.curl.getinfo(pycurl.PRIMARY_IP)
        hop = slot.exchange(head, address, cut_of(None, slot.trouble), transfer.hops + 1)
        try:
            transfer.follow(head, location)
        except BadTarget as error:
            return False, FailureClass.CONTENT, str(error)
        transfer.hop_frames += self._options.keep_hop(hop)
        slot.refused = ""
        self._gate.offer(transfer.site, transfer, first=True)
        return True, None, ""

    def _report(
        self, slot: Slot, transfer: Transfer, head: Head, failure: FailureClass | None, detail: str
    ) -> None:
        cut = cut_of(failure, slot.trouble) if head.status else None
        wait: float | None = None
        if failure is None and self._counts_as_failed(head.status):
            failure = FailureClass.STATUS
            detail = f"the server answered {head.status} {head.reason}"
            if head.status in _ASKS_TO_WAIT:
                wait = retry_after(head.first("retry-after"), self._options.clock.now())
        address = slot.curl.getinfo(pycurl.PRIMARY_IP)
        frames, exchange = b"", None
        if head.status:
            exchange = slot.exchange(head, address, cut)
            if self._options.keep is not None:
                frames, exchange = self._options.keep(exchange), None
            # After the final response: readers take the first record.
            frames += transfer.hop_frames
        detail = detail or slot.note
        outcome = Outcome(
            transfer.work.id, failure or "", head.status, short(detail) if detail else "",
            int(transfer.elapsed * 1e6), transfer.sent, transfer.received, address,
            0, 0 if exchange else len(frames), wait, transfer.final_uri,
        )  # fmt: skip
        fetched = Fetched(outcome, frames, transfer.host, transfer.began, exchange)
        self.finished.append((transfer.done, fetched))

    def _counts_as_failed(self, status: int) -> bool:
        return status >= FIRST_ERROR_STATUS and status not in self._settings.accept_status

    def _recall(self) -> None:
        for transfer in self._gate.withdraw(lambda transfer: not transfer.began):
            self.finished.append((transfer.done, Fetched(lost_outcome(transfer.work))))

    def _abort_all(self) -> None:
        """Return all requests as `lost`, then free libcurl."""
        transfers = [slot.transfer for slot in self._running] + self._gate.drain()
        transfers += self._routes.parked if self._routes is not None else []
        for transfer in transfers:
            self._inbox.append((transfer.work, transfer.done))
        self._give_back_inbox()
        for slot in self._running:
            self._multi.remove_handle(slot.curl)
        try:
            self._note()
        finally:
            self._close()

    def _dialled(self, trouble: str) -> None:
        """Active transfers were cut off; requests that waited continue, or end."""
        for slot in tuple(self._running):
            self._land(slot, pycurl.E_RECV_ERROR, "the connection was redialled")
        parked = self._routes.redialled() if self._routes is not None else []
        self._reconnect()
        self._room = self._options.connections
        for transfer in parked:
            if trouble:
                outcome = Outcome(transfer.work.id, FailureClass.BLOCKED, detail=short(trouble))
                self.finished.append((transfer.done, Fetched(outcome)))
            else:
                self._gate.offer(transfer.site, transfer, first=True)


def _oddity(slot: Slot, head: Head) -> CurlFailure | None:
    """Problems in the head of a response that libcurl accepted."""
    if not head.status:
        said = upgrade_in(slot.lines) or "no status line"
        return FailureClass.CONTENT, f"the server sent no final response: {said}"
    if head.has_invalid_length():
        return FailureClass.CONTENT, "the Content-Length of the response is out of range"
    if len(head.raw) > HEAD_LIMIT:
        return FailureClass.LIMIT, f"the headers exceed the limit of {HEAD_LIMIT} bytes"
    return None
