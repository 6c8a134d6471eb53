"""The results of a page become a part of a checkpoint: items numbered, requests checked.

Runs in the spider's process. All or nothing per page: a page whose callback raised leaves
neither items nor requests, so that it can be parsed again as a whole. A link that is
not a URL is left out and counted; the rest of the page is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from skep.errors import InvalidInput
from skep.model.hosts.named_places import places_in
from skep.model.request import URI_LIMIT, NewRequest
from skep.spiders.authoring.item import as_data, is_item
from skep.spiders.authoring.links import is_under
from skep.spiders.authoring.request import Request
from skep.spiders.authoring.spider import Spider
from skep.spiders.driving.request_meta import sealed
from skep.spiders.driving.sent_urls import SeenUrls
from skep.spiders.driving.stats import Stats
from skep.spiders.ports import FoundItem

#: Items and requests of one page, so that a checkpoint always fits into one call.
PAGE_BYTES = 32 * 2**20
#: Bytes of a request beside its URL and its data, approximately.
REQUEST_BYTES = 50
#: What every center accepts; it checks again, and refuses a whole checkpoint for one bad URL.
_SENDABLE = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[^\s/?#\\@\x00-\x20\x7f]+@)?"
    r"(?:\[[0-9a-f:.]+\]|[^\W_][\w.-]{0,252})(?::[0-9]{1,5})?(?:[/?#]\S*)?",
    re.IGNORECASE,
)
_LAST_PORT = 65_535
_PORT = re.compile(r"//(?:[^/?#@]*@)?(?:\[[^\]]*\]|[^/?#:\[\]]*):([0-9]+)")
#: Where a request was yielded: by which page (or start), and as which of its results.
Place = tuple[int | str, int]
_to_json = msgspec.json.Encoder().encode


class Harvest(msgspec.Struct):
    """Items and requests of one page, or of a part of `start`."""

    items: list[FoundItem] = msgspec.field(default_factory=list)
    requests: list[NewRequest] = msgspec.field(default_factory=list)
    bytes: int = 0
    #: Loopback and private places that start URLs name.
    named: set[str] = msgspec.field(default_factory=set)


class Harvester:
    """Knows which requests were sent, which callbacks exist and what the limits are."""

    def __init__(self, spider: Spider, stats: Stats, nonce: str = "") -> None:
        self._spider = spider
        self._nonce = nonce
        self._started = 0
        self._stats = stats
        self._seen = SeenUrls(spider.options.remembered_urls)
        self._deepest = spider.options.depth_limit
        self._domains = tuple(domain.lower() for domain in spider.allowed_domains)
        self._callbacks: set[str] = {""}
        #: Requests name the page on which they were found: the run is chained.
        self.chained = False

    def page(self, results: Iterable[Any], request_id: int, depth: int, first: int = 0) -> Harvest:
        """Of a callback's results; raises InvalidInput for what is neither item nor request.

        Items count from `first`: the same page parsed again gives the same numbers.
        """
        harvest = Harvest()
        urls: set[str] = set()
        for place, result in enumerate(results, first):
            if isinstance(result, Request):
                self._request(harvest, result, depth + 1, urls, (request_id, place))
            elif is_item(result):
                data, size = as_data(result)
                harvest.items.append(FoundItem(request_id, first + len(harvest.items), data))
                harvest.bytes += size
            else:
                raise InvalidInput(
                    f"a callback gave {_named(result)}; it gives items (dict, dataclass, Struct, "
                    "Item) and Requests"
                )
        if harvest.bytes > PAGE_BYTES:
            raise InvalidInput(f"one page gave more than {PAGE_BYTES} bytes of items and requests")
        self._remember(urls)
        return harvest

    def start(self, results: Iterable[Any]) -> Harvest:
        """Of `start`: requests and URLs. The rules look at these pages in any case."""
        harvest = Harvest()
        urls: set[str] = set()
        for result in results:
            request = Request(result) if isinstance(result, str) else result
            if not isinstance(request, Request):
                raise InvalidInput(f"start() gave {_named(result)}; it gives Requests and URLs")
            request.follow = bool(self._spider.rules)
            self._started += 1
            self._request(harvest, request, 0, urls, (self._nonce, self._started))
        self._remember(urls)
        harvest.named = places_in(request.uri for request in harvest.requests)
        return harvest

    def _request(
        self, harvest: Harvest, request: Request, depth: int, urls: set[str], place: Place
    ) -> None:
        url = request.url
        if request.is_plain:
            if url in self._seen or url in urls:
                self._stats.known += 1
                return
            urls.add(url)
        if not self._is_wanted(request, depth):
            return
        harvest.bytes += self._check(request)
        request.depth = depth
        new = sealed(request, place)
        if self.chained and isinstance(place[0], int):
            new.parent = place[0]
        harvest.requests.append(new)
        harvest.bytes += len(url) + 2 * len(request.body) + REQUEST_BYTES

    def _is_wanted(self, request: Request, depth: int) -> bool:
        if self._deepest and depth > self._deepest:
            self._stats.too_deep += 1
        elif not is_sendable(request.url):
            self._stats.not_urls += 1
            self._spider.log.warning("not a URL that can be fetched: %.200r", request.url)
        elif depth and self._domains and not is_under(request.url, self._domains):
            self._stats.elsewhere += 1
        else:
            return True
        return False

    def _check(self, request: Request) -> int:
        """Refuse what the center would refuse, where it is made; returns the bytes of its data."""
        for name in (request.callback, request.errback):
            if name not in self._callbacks:
                self._check_callback(name)
        if not (request.meta or request.kwargs):
            return 0
        try:
            return len(_to_json((request.meta, request.kwargs)))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(
                f"meta and kwargs of {request.url} must be plain data: {error}"
            ) from error

    def _check_callback(self, name: str) -> None:
        if name.startswith("_") or not callable(getattr(self._spider, name, None)):
            kind = type(self._spider).__name__
            raise InvalidInput(f"{kind} has no method {name!r} to be a callback")
        self._callbacks.add(name)

    def _remember(self, urls: set[str]) -> None:
        """At the end only: a page that raised has sent nothing."""
        for url in urls:
            self._seen.add(url)


def is_sendable(url: str) -> bool:
    """Whether a center would take the URL."""
    if len(url) > URI_LIMIT or not _SENDABLE.fullmatch(url):
        return False
    port = _PORT.search(url)
    return port is None or 0 < int(port[1]) <= _LAST_PORT


def _named(result: Any) -> str:
    return f"{type(result).__name__} {result!r:.100}"
