"""URLs that this process has sent already, so that known links cost no call. Bounded.

A URL that it knows was sent. A URL that it has forgotten is sent again, and the store, which
knows every URL of the run, does not accept it twice.
"""

from __future__ import annotations


class SeenUrls:
    """Two generations of at most `limit / 2` URLs; the older one is forgotten as a whole."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._young: set[str] = set()
        self._old: set[str] = set()

    def __contains__(self, url: str) -> bool:
        return url in self._young or url in self._old

    def add(self, url: str) -> None:
        """Remember it; with a limit of 0 nothing is."""
        self._young.add(url)
        if len(self._young) > self._half:
            self._old, self._young = self._young, set()
            if not self._half:
                self._old.clear()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
