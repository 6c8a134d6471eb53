"""What libcurl needs for one session: handles, cookies, connections. Runs in the thread of a
downloader.

Handles of one CurlMulti use each other's connections, for which libcurl knows hosts, proxies
and logins but no sessions. So each session has a CurlShare with cookies, TLS sessions and
*connections* of its own, and nothing of one can be used by another.
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
    """Handles of one session, and what they share."""

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
        """A handle of this session; whoever is done with it puts it into `slot.home`."""
        return self._free.pop() if self._free else Slot(self._options, self._free)

    def cookies(self) -> list[str]:
        """The jar, one line for each cookie."""
        return cookies_in(self._share) if self._options.cookies else []

    def close(self) -> None:
        """Every handle must be back."""
        for slot in self._free:
            slot.close()
        self._free.clear()
        self._share.close()
