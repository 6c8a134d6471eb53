"""The same site with rules: which links to follow, and which callback reads their pages."""

from __future__ import annotations

import skep
from skep import Links, Rule


class PageTitle(skep.Item):
    """The item of a page."""

    url: str
    title: str


class DemoRules(skep.Spider):
    """Every page of the demo site; the rule follows the links."""

    name = "demo-rules"
    start_urls = ["http://127.0.0.1:8421/"]
    rules = [Rule(Links(allow=r"/page/\d+$"), callback="parse_page", follow=True)]

    def parse_page(self, response: skep.Response) -> PageTitle:
        return PageTitle(response.url, response.title)
