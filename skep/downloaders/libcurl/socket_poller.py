"""Waits for the sockets of one CurlMulti with epoll. Runs in the thread of a downloader.

libcurl's own select() stops at descriptor 1024 and cannot be woken; epoll has neither
limit. Between two requests on a kept connection the registration stays as it is, which
saves a system call per page: a socket that speaks while it rests is let go then.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Any

import pycurl

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_EPOLL_OF = {
    pycurl.POLL_IN: _IN,
    pycurl.POLL_OUT: _OUT,
    pycurl.POLL_INOUT: _IN | _OUT,
}
#: Anything else (errors, hang-ups) is 0: libcurl looks for itself.
_CURL_OF = {
    _IN: pycurl.CSELECT_IN,
    _OUT: pycurl.CSELECT_OUT,
    _IN | _OUT: pycurl.CSELECT_IN | pycurl.CSELECT_OUT,
}


class Poller:
    """Everything between `multi.add_handle` and `multi.info_read`."""

    def __init__(self, multi: Any, now: Callable[[], float], wake_fd: int) -> None:
        self._act = multi.socket_action
        self._now = now
        self._epoll = select.epoll()
        self._registered: dict[int, int] = {}
        self._resting: set[int] = set()
        self._alarm: float | None = None
        self._wake_fd = wake_fd
        self._epoll.register(wake_fd, _IN)
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)

    def wait(self, longest: float) -> bool:
        """Wait up to `longest` seconds, then let libcurl work on whatever happened.

        True when a socket had something to say.
        """
        alarm = self._alarm
        if alarm is not None:
            longest = min(longest, max(alarm - self._now(), 0.0))
        act = self._act
        resting = self._resting
        happened = self._epoll.poll(longest)
        for fd, event in happened:
            if fd == self._wake_fd:
                os.eventfd_read(fd)
            elif fd in resting:
                self._let_go(fd)
            else:
                act(fd, _CURL_OF.get(event, 0))
        self._run_timer()
        return bool(happened)

    def _run_timer(self) -> None:
        """libcurl starts new transfers and ends late ones only when its timer is served."""
        if self._alarm is not None and self._alarm <= self._now():
            self._alarm = None
            self._act(pycurl.SOCKET_TIMEOUT, 0)

    def on_new_socket(self, fd: int, _purpose: int) -> int:
        """A descriptor number is used again: what was known about it is no longer true."""
        self._registered.pop(fd, None)
        self._resting.discard(fd)
        return 0

    def close(self) -> None:
        """The CurlMulti was closed before; they let go of each other."""
        self._epoll.close()
        del self._act

    def _on_timer(self, milliseconds: int) -> None:
        if milliseconds > 0:
            self._alarm = self._now() + milliseconds / 1000
        else:
            # At once needs no look at the clock, and is what libcurl says for each request.
            self._alarm = None if milliseconds else 0.0

    def _on_socket(self, what: int, fd: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            if self._registered.get(fd) == _IN:
                self._resting.add(fd)
            else:
                self._let_go(fd)
            return
        events = _EPOLL_OF.get(what, 0)
        # A number that rested may belong to another socket by now: epoll must be asked.
        if fd in self._resting or self._registered.get(fd) != events:
            self._resting.discard(fd)
            self._register(fd, events)

    def _register(self, fd: int, events: int) -> None:
        known = fd in self._registered
        self._registered[fd] = events
        if known:
            try:
                self._epoll.modify(fd, events)
            except FileNotFoundError:
                known = False
        if not known:
            self._epoll.register(fd, events)

    def _let_go(self, fd: int) -> None:
        self._resting.discard(fd)
        if self._registered.pop(fd, None) is not None:
            try:
                self._epoll.unregister(fd)
            except OSError:
                # It was closed in the meantime, which takes it out of epoll as well.
                return
