"""Waits for the sockets of one CurlMulti with epoll. Runs in the thread of a downloader.

libcurl's own select() is limited to descriptors below 1024 and cannot be woken; epoll has neither
limit. Between two requests on a kept connection the registration stays, which saves a system call
per page; an event on such an idle socket unregisters it.
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
#: All other events (errors, hang-ups) are 0: libcurl checks by itself.
_CURL_OF = {
    _IN: pycurl.CSELECT_IN,
    _OUT: pycurl.CSELECT_OUT,
    _IN | _OUT: pycurl.CSELECT_IN | pycurl.CSELECT_OUT,
}


class Poller:
    """The event loop between `multi.add_handle` and `multi.info_read`."""

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
        """Wait up to `longest` seconds, then let libcurl process the events.

        True when there was an event.
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
        """libcurl starts new transfers and ends late ones only when its timer is called."""
        if self._alarm is not None and self._alarm <= self._now():
            self._alarm = None
            self._act(pycurl.SOCKET_TIMEOUT, 0)

    def on_new_socket(self, fd: int, _purpose: int) -> int:
        """A descriptor number is reused: forget its registration."""
        self._registered.pop(fd, None)
        self._resting.discard(fd)
        return 0

    def close(self) -> None:
        """Close it after the CurlMulti, and delete the reference to it."""
        self._epoll.close()
        del self._act

    def _on_timer(self, milliseconds: int) -> None:
        if milliseconds > 0:
            self._alarm = self._now() + milliseconds / 1000
        else:
            # "Now" needs no clock, and libcurl asks for it with each request.
            self._alarm = None if milliseconds else 0.0

    def _on_socket(self, what: int, fd: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            if self._registered.get(fd) == _IN:
                self._resting.add(fd)
            else:
                self._let_go(fd)
            return
        events = _EPOLL_OF.get(what, 0)
        # The number may belong to another socket now: update epoll.
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
                # It was closed meanwhile, which also removes it from epoll.
                return
