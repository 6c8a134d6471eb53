"""The same site with its sitemap, which its robots.txt names."""

from __future__ import annotations

import skep


class DemoSitemap(skep.Spider):
    """Pages 10 to 19 of the demo site."""

    name = "demo-sitemap"
    sitemap_urls = ["http://127.0.0.1:8421/robots.txt"]
    sitemap_allow = r"/page/1\d$"

    async def parse(self, response: skep.Response) -> dict[str, str]:
        return {"url": response.url, "title": response.title}
