"""scrapy-redis: one queue in Redis, two Scrapy processes. Run by its own Python.

Arguments: start URL, URL of Redis. Tuned like the single Scrapy; bodies discarded, the queue and
the filter in Redis without persistence. A process ends when the queue was empty for a while; the
time is taken until the last page. The parent prints pages, items, seconds and CPU of both.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy_redis.spiders import RedisSpider

#: Seconds without work before a process ends; longer than the start of the other one.
IDLE = 5
PROCESSES = 2
KEY = "pages:start_urls"
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
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "SCHEDULER_PERSIST": True,  # else the first process to end empties the filter
    "MAX_IDLE_TIME_BEFORE_CLOSE": IDLE,
}


class Pages(RedisSpider):  # type: ignore[misc]  # the peer has no types for us
    name = "pages"
    redis_key = KEY
    found: list[str]
    last: list[float]

    def make_request_from_data(self, data: bytes) -> Any:
        """With the duplicate filter, unlike the default: the start page is linked to as well."""
        return scrapy.Request(data.decode())

    def parse(self, response: Any) -> Iterator[Any]:
        title = response.css("title::text").get()
        if title:
            self.found.append(response.url)
            self.last[0] = time.time()
        yield {"url": response.url, "title": title}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, self.parse)


def child(redis_url: str) -> dict[str, Any]:
    found: list[str] = []
    last = [0.0]
    process = CrawlerProcess({**TUNED, "REDIS_URL": redis_url})
    crawler = process.create_crawler(Pages)
    process.crawl(crawler, found=found, last=last)
    begun = time.time()
    process.start()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"found": found, "begun": begun, "last": last[0], "cpu": used.ru_utime + used.ru_stime}


def main(start: str, redis_url: str) -> dict[str, float]:
    import redis

    server = redis.Redis.from_url(redis_url)
    server.flushall()
    command = [sys.executable, "-I", str(Path(__file__)), "child", redis_url]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    server.lpush(KEY, start)
    told = [json.loads(one.communicate()[0].strip().rpartition("\n")[2]) for one in children]
    found = [url for one in told for url in one["found"]]
    begun = min(one["begun"] for one in told)
    return {
        "seconds": max(one["last"] for one in told) - begun,
        "cpu": sum(one["cpu"] for one in told),
        "pages": len(found),
        "items": len(found),
        "unique": len(set(found)),
    }


if __name__ == "__main__":
    made = child(sys.argv[2]) if sys.argv[1] == "child" else main(sys.argv[1], sys.argv[2])
    print(json.dumps(made))
