"""A first spider, for the site that comes with Skep: `python -m skep.testing.site`.

It takes the title and the text length of every page and follows the links that it finds.
"""

from __future__ import annotations

from collections.abc import Iterator

import skep


class DemoPages(skep.Spider):
    """Every page of the demo site."""

    name = "demo-pages"
    start_urls = ["http://127.0.0.1:8421/"]
    settings = {"retries": 2, "host_concurrency": 16}

    def parse(self, response: skep.Response) -> Iterator[skep.Request]:
        """The front page: only links."""
        yield from response.follow_all(css="li a", callback=self.parse_page)

    def parse_page(self, response: skep.Response) -> Iterator[dict[str, object] | skep.Request]:
        """A page: one item, and further pages."""
        yield {
            "url": response.url,
            "title": response.css("h1::text").get(),
            "length": len(response.xpath("string(//p)").get("")),
        }
        yield from response.follow_all(css="li a", callback=self.parse_page)
