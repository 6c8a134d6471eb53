"""Pages of the run's queue become responses and failures of the spider.

Runs in the spider's process. The archived frames are unpacked when the callback first
looks at the body or the headers, and once.
"""

from __future__ import annotations

from skep.archive.records import CUT_BY, HOP, FirstRecords, read_records, split_response
from skep.spiders.authoring.headers import Headers
from skep.spiders.authoring.response import Failure, Hop, Response, Unpacked
from skep.spiders.driving.request_meta import opened
from skep.spiders.ports import Page

_NOTHING: Unpacked = (0, (), b"", "", "")


class Unpacker:
    """One decompressor for all pages of a spider."""

    def __init__(self) -> None:
        self._read = FirstRecords().read

    def response(self, page: Page) -> Response:
        """The response of a request that worked, or of one that failed with an answer."""
        return Response(
            page.final_uri or page.uri,
            status=page.status,
            request=opened(page),
            elapsed=page.elapsed_us / 1e6,
            unpack=(lambda: self._unpacked(page)) if page.frames else None,
            hops=(lambda: _hops(page)) if page.frames and page.final_uri else None,
        )

    def failure(self, page: Page) -> Failure:
        """What an errback gets."""
        response = self.response(page) if page.status else None
        request = response.request if response else opened(page)
        return Failure(page.failure or page.state, page.detail, request, response)

    def _unpacked(self, page: Page) -> Unpacked:
        record = self._read(page.frames)
        if record.type != "response":
            return (page.status, *_NOTHING[1:])
        status, headers, body = split_response(record)
        found = record.headers.get
        cut = found(CUT_BY) or found("WARC-Truncated", "")
        return status, headers, body, found("WARC-IP-Address", ""), cut


def _hops(page: Page) -> list[Hop]:
    """The redirects that led to a page, in their order."""
    found = []
    for record in read_records(page.frames):
        if record.type == "response" and HOP in record.headers:
            status, headers, _ = split_response(record)
            found.append(Hop(record.headers.get("WARC-Target-URI", ""), status, Headers(headers)))
    return found
