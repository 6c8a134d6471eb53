"""The same spider for Scrapy, as its users write it: default settings, not tuned.

Run by `scrapy runspider`; argument: url.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy


class OnePage(scrapy.Spider):  # type: ignore[misc]  # the peer has no types for us
    name = "one-page"
    url: str

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(self.url)

    def parse(self, response: Any) -> Iterator[dict[str, object]]:
        yield {"url": response.url, "title": response.css("title::text").get()}
