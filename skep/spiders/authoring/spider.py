"""The class that people write: where to start, what to take, where to go next.

Its code runs in a process of its own, called by `engine`. Nothing here talks to a center:
a spider can be made and its methods called in any test.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, get_type_hints

import msgspec

from skep.errors import ConfigurationError
from skep.runtime.value_errors import allowed_values
from skep.spiders.authoring import sitemaps_and_feeds
from skep.spiders.authoring.links import Patterns, Rule, compiled
from skep.spiders.authoring.request import Request
from skep.spiders.authoring.response import Failure, Response
from skep.spiders.authoring.spider_settings import split_settings


class Spider:
    """Subclass it, give it a `name` and `start_urls`, and write `parse`.

    `start`, `parse`, every other callback and the hooks may be plain functions, generators,
    `async` functions or `async` generators.
    """

    #: Names the job; the class's name in small letters when it is not given.
    name: str = ""
    start_urls: Sequence[str] = ()
    #: Sitemaps, sitemap indexes, or a robots.txt that names them.
    sitemap_urls: Sequence[str] = ()
    #: RSS and Atom feeds.
    feed_urls: Sequence[str] = ()
    #: Pages of a sitemap that are taken, by regular expression; all without any.
    sitemap_allow: Patterns = ()
    #: Hosts, with their subdomains, that links may lead to; any without one.
    allowed_domains: Sequence[str] = ()
    #: Fields of a run's settings and of SpiderOptions.
    settings: ClassVar[Mapping[str, Any]] = {}
    rules: Sequence[Rule] = ()

    def __init__(self, **arguments: Any) -> None:
        self.name = self.name or type(self).__name__.lower()
        self.log = logging.getLogger(f"skep.spider.{self.name}")
        self._take(arguments)
        self.run_settings, self.options = split_settings(self.settings, f"spider {self.name}")

    def _take(self, arguments: Mapping[str, Any]) -> None:
        """`-a pages=3` is `self.pages`, as a number where the class says `pages: int`."""
        hints = _hints(type(self)) if arguments else {}
        for name, value in arguments.items():
            if not name.isidentifier() or name.startswith("_") or _is_own(type(self), name):
                raise ConfigurationError(f"spider {self.name} takes no argument {name!r}")
            setattr(self, name, _converted(name, value, hints.get(name)))

    def start(self) -> Any:
        """The first requests: `Request`s or URLs. By default all of `start_urls`,
        `sitemap_urls` and `feed_urls`."""
        for url in _listed(self.start_urls, "start_urls"):
            yield Request(url)
        for url in _listed(self.sitemap_urls, "sitemap_urls"):
            yield Request(url, "read_sitemap")
        for url in _listed(self.feed_urls, "feed_urls"):
            yield Request(url, "read_feed")

    def parse(self, response: Response) -> Any:  # noqa: ARG002 - the contract of a callback
        """Yields items and requests. A spider with rules may leave it out."""
        if not self.rules:
            raise NotImplementedError(f"{type(self).__name__} has no method parse(self, response)")

    def failed(self, failure: Failure) -> Any:
        """The errback of requests that name none."""
        self.log.warning("%s: %s: %s", failure.url, failure.kind, failure.detail)

    def opened(self) -> Any:
        """Called before the first request."""

    def closed(self, reason: str) -> Any:
        """Called at the end, with the word for why it ended."""

    def follow_rules(self, response: Response) -> Iterator[Request]:
        """A request for each link that a rule takes; the first rule that does so has it."""
        taken: set[str] = set()
        for rule in self.rules:
            for url in rule.links.of(response):
                if url not in taken:
                    taken.add(url)
                    request = Request(url, rule.callback, priority=rule.priority)
                    request.follow = rule.follow
                    if not request.callback:
                        request.callback = "only_follow"
                    yield request

    def only_follow(self, response: Response) -> None:
        """The callback of rules that have none: the rules alone look at the page."""

    def read_sitemap(self, response: Response, level: int = 0) -> Iterator[Request]:
        """Requests for the pages of a sitemap; nested ones are read to a limited depth."""
        found = sitemaps_and_feeds.read_sitemap(response.body, response.url)
        if level < sitemaps_and_feeds.NESTING_LIMIT:
            for url in found.sitemaps:
                yield Request(url, "read_sitemap", kwargs={"level": level + 1})
        patterns = compiled(self.sitemap_allow)
        for url in found.pages:
            if not patterns or any(pattern.search(url) for pattern in patterns):
                yield Request(url)

    def read_feed(self, response: Response) -> Iterator[Request]:
        """Requests for the entries of a feed; `response.meta["entry"]` is what it said."""
        for entry in sitemaps_and_feeds.read_feed(response.body, response.url):
            yield Request(entry.url, meta={"entry": msgspec.to_builtins(entry)})


def _is_own(kind: type[Spider], name: str) -> bool:
    """Methods and what Skep itself sets are no arguments."""
    own = {"log", "options", "run_settings", "rules", "settings"}
    return name in own or callable(getattr(kind, name, None))


def _hints(kind: type[Spider]) -> dict[str, Any]:
    try:
        return get_type_hints(kind)
    except (NameError, TypeError):  # names that exist for type checkers only
        return {}


def _converted(name: str, value: Any, hint: Any) -> Any:
    if hint is None or not isinstance(value, str):
        return value
    try:
        if name.endswith("_urls") or hint in {list[str], tuple[str, ...]}:
            value = value.split(",")
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        allowed = f"it must be {allowed_values(hint)}" if allowed_values(hint) else str(error)
        raise ConfigurationError(f"argument {name}={value!r}: {allowed}") from error
    except TypeError:  # a hint that is not a data type
        return value


def _listed(urls: Sequence[str], name: str) -> Sequence[str]:
    if isinstance(urls, str):
        raise ConfigurationError(f"{name} is a list of URLs, not one text: write [{urls!r}]")
    return urls
