"""Scrapy with stored state: JOBDIR, items appended to a feed. Run by its own Python.

Arguments: start URL, folder of the job, feed. Started again, it continues as far as it can.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess


class Pages(scrapy.Spider):  # type: ignore[misc]  # the peer has no types for us
    name = "pages"

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield scrapy.Request(url)

    def parse(self, response: Any) -> Iterator[Any]:
        yield {"url": response.url, "title": response.css("title::text").get()}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, self.parse)


def main(start: str, job: str, feed: str) -> None:
    process = CrawlerProcess(
        {
            "LOG_LEVEL": "INFO",
            "TELNETCONSOLE_ENABLED": False,
            "ROBOTSTXT_OBEY": False,
            "CONCURRENT_REQUESTS": 64,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
            "DOWNLOAD_DELAY": 0,
            "JOBDIR": job,
            "FEEDS": {feed: {"format": "jsonlines", "overwrite": False}},
        }
    )
    process.crawl(Pages, start_urls=[start])
    process.start()


if __name__ == "__main__":
    main(*sys.argv[1:4])
