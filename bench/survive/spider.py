"""The spider of the benchmark `survive`, as a user would write it. Run by `skep run`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import skep


class Pages(skep.Spider):
    """Every page once, with its title."""

    name = "pages"
    url: str = ""

    def start(self) -> Iterator[str]:
        yield self.url

    def parse(self, response: skep.Response) -> Iterator[Any]:
        yield {"url": response.url, "title": response.title}
        yield from response.follow_all()
