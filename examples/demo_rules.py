"""The same site by rules: which links, and who looks at their pages."""

from __future__ import annotations

import skep
from skep import Links, Rule


class PageTitle(skep.Item):
    """What is kept of a page."""

    url: str
    title: str


class DemoRules(skep.Spider):
    """Every page of the demo site, without a line about following."""

    name = "demo-rules"
    start_urls = ["http://127.0.0.1:8421/"]
    rules = [Rule(Links(allow=r"/page/\d+$"), callback="parse_page", follow=True)]

    def parse_page(self, response: skep.Response) -> PageTitle:
        return PageTitle(response.url, response.title)
