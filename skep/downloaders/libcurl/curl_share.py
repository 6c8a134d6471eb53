"""The libcurl resources of one session: handles, cookies, connections. Runs in the thread of a
downloader.

Handles of one CurlMulti share connections, which libcurl separates by host, proxy and credentials
but not by session. So each session has a CurlShare with its own cookies, TLS sessions and
*connections*, and no session can use those of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pycurl

from skep.downloaders.libcurl.cookie_jar import cookies_in, put_cookies
from skep.downloaders.libcurl.request_headers import Outgoing
from skep.downloaders.libcurl.slot import Slot, SlotOptions
from skep.downloaders.proxies import Proxy


class CurlShare:
    """The handles of one session, and what they share."""

    def __init__(
        self, base: SlotOptions, proxy: Proxy | None, outgoing: Outgoing, cookies: Sequence[str]
    ) -> None:
        self._share = pycurl.CurlShare()
        self._share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_CONNECT)
        self._share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_SSL_SESSION)
        if base.cookies:
            self._share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_COOKIE)
        self._options = replace(base, share=self._share, proxy=proxy, outgoing=outgoing)
        self._free: list[Slot] = []
        self.outgoing = outgoing
        if cookies:
            put_cookies(self._share, cookies)

    def slot(self) -> Slot:
        """A handle of this session; return it by adding it to `slot.home`."""
        return self._free.pop() if self._free else Slot(self._options, self._free)

    def cookies(self) -> list[str]:
        """The cookies of the session, one line for each."""
        return cookies_in(self._share) if self._options.cookies else []

    def close(self) -> None:
        """Close it; every handle must have been returned."""
        for slot in self._free:
            slot.close()
        self._free.clear()
        self._share.close()
