"""Scrapy, tuned: the whole site by links, titles extracted. Run by its own Python.

Argument: start URL. Prints pages, items, different URLs, seconds and CPU of the crawl.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess

TUNED = {
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "REDIRECT_ENABLED": False,
    "REFERER_ENABLED": False,
    "CONCURRENT_ITEMS": 4,
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
    "DOWNLOAD_DELAY": 0,
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
}


class Pages(scrapy.Spider):  # type: ignore[misc]  # the peer has no types for us
    name = "pages"
    found: list[str]

    async def start(self) -> AsyncIterator[Any]:
        """With the duplicate filter: without it, start pages are downloaded again when linked."""
        for url in self.start_urls:
            yield scrapy.Request(url)

    def parse(self, response: Any) -> Iterator[Any]:
        title = response.css("title::text").get()
        if title:
            self.found.append(response.url)
        yield {"url": response.url, "title": title}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, self.parse)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(start: str) -> dict[str, float]:
    found: list[str] = []
    process = CrawlerProcess(TUNED)
    crawler = process.create_crawler(Pages)
    process.crawl(crawler, start_urls=[start], found=found)
    used, begun = cpu(), time.perf_counter()
    process.start()
    seconds, used = time.perf_counter() - begun, cpu() - used
    return {
        "seconds": seconds,
        "cpu": used,
        "pages": crawler.stats.get_value("downloader/response_status_count/200"),
        "items": crawler.stats.get_value("item_scraped_count"),
        "unique": len(set(found)),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
