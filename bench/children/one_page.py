"""A Skep spider that reads one page, for `start`. Argument: url."""

from __future__ import annotations

from collections.abc import Iterator

import skep


class OnePage(skep.Spider):
    """`skep run bench/children/one_page.py -a url=URL`."""

    name = "one-page"
    url: str

    def start(self) -> Iterator[skep.Request]:
        yield skep.Request(self.url)

    def parse(self, response: skep.Response) -> Iterator[dict[str, object]]:
        yield {"url": response.url, "title": response.css("title::text").get()}
