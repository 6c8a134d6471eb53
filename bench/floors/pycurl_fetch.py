"""The floor of `fetch`: only libcurl's multi loop. Arguments: base URL, pages, concurrency, and
`gzip` if the server sends such bodies, which libcurl then decodes itself.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from io import BytesIO

import pycurl


class Bare:
    """64 handles that take the next URL when they are free."""

    def __init__(self, width: int, *, gzip: bool = False) -> None:
        self._gzip = gzip
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, width)
        self._free = [pycurl.Curl() for _ in range(width)]
        for handle in self._free if gzip else ():
            handle.setopt(pycurl.ENCODING, "gzip")
        self._bodies: dict[pycurl.Curl, BytesIO] = {}
        self.good = 0
        self.received = 0

    def fetch(self, urls: list[str]) -> None:
        left = urls[::-1]
        while left or self._bodies:
            while left and self._free:
                self._begin(self._free.pop(), left.pop())
            self._turn()

    def _begin(self, handle: pycurl.Curl, url: str) -> None:
        body = self._bodies[handle] = BytesIO()
        handle.setopt(pycurl.URL, url)
        handle.setopt(pycurl.WRITEDATA, body)
        self._multi.add_handle(handle)

    def _turn(self) -> None:
        self._multi.perform()
        waiting, done, failed = self._multi.info_read()
        while done or failed or waiting:
            for handle in done:
                self._end(handle)
            if failed:
                raise RuntimeError(f"downloads failed: {failed[:3]}")
            if not waiting:
                break
            waiting, done, failed = self._multi.info_read()
        if not self._free:
            self._multi.select(1.0)

    def _end(self, handle: pycurl.Curl) -> None:
        length = len(self._bodies.pop(handle).getvalue())
        announced = handle.getinfo(pycurl.CONTENT_LENGTH_DOWNLOAD_T)
        whole = length > announced if self._gzip else length == announced
        if handle.getinfo(pycurl.RESPONSE_CODE) == 200 and whole:
            self.good += 1
            self.received += length
        self._multi.remove_handle(handle)
        self._free.append(handle)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(base: str, pages: int, width: int, *, gzip: bool) -> dict[str, float]:
    bare = Bare(width, gzip=gzip)
    bare.fetch([f"{base}{n}" for n in range(width)])
    bare.good = bare.received = 0
    urls = [f"{base}{n}" for n in range(pages)]
    used, begun = cpu(), time.perf_counter()
    bare.fetch(urls)
    return {
        "cpu": cpu() - used,
        "seconds": time.perf_counter() - begun,
        "pages": bare.good,
        "bytes": bare.received,
    }


if __name__ == "__main__":
    place, count, at_a_time = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(measure(place, count, at_a_time, gzip="gzip" in sys.argv[4:])))
