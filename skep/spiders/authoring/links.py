"""Which links of a page to take, and what to do with them: `Links` and `Rule`.

Runs in the spider's process for every link of every page, so the checks stand in order of
their cost. Patterns come from the spider's author; the time limit of callbacks holds for
them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from skep.errors import InvalidInput
from skep.spiders.authoring.absolute_urls import Joiner
from skep.spiders.authoring.parsed_page import Document
from skep.spiders.authoring.request import Callback

_BINARY = """
7z aac ai aiff apk avi bin bmp bz2 cdr css dmg doc docm docx dot dotx drw eps exe flac
flv gif gz ico iso jar jpeg jpg js m4a m4v mid mkv mng mov mp3 mp4 mpeg mpg msi odg
odp ods odt ogg ogv otf pbm pct pdf png pps ppt pptm pptx ps psd pst qt ra rar rm rpm
svg swf tar tgz tif tiff ttf wav webm webp whl wma wmv woff woff2 xls xlsm xlsx xz zip
zst
"""
#: Files that are not pages. `Links(deny_extensions=())` takes them too.
BINARY = frozenset(_BINARY.split())


class LinkSource(Protocol):
    """What `Links` needs of a response."""

    @property
    def document(self) -> Document: ...

    @property
    def joiner(self) -> Joiner: ...


Patterns = str | re.Pattern[str] | Iterable[str | re.Pattern[str]]


class Links:
    """A choice among the links of a page.

    `allow` and `deny` are regular expressions, searched in the absolute URL; `allow_hosts`
    and `deny_hosts` take a host with all its subdomains; `within` is a CSS selector for the
    part of the page to look at. A link is given once, without its fragment.
    """

    def __init__(
        self,
        allow: Patterns = (),
        deny: Patterns = (),
        *,
        allow_hosts: str | Sequence[str] = (),
        deny_hosts: str | Sequence[str] = (),
        deny_extensions: Iterable[str] = BINARY,
        tags: Sequence[str] = ("a", "area"),
        attributes: Sequence[str] = ("href",),
        within: str = "",
        unique: bool = True,
    ) -> None:
        self._allow = compiled(allow)
        self._deny = compiled(deny)
        self._allow_hosts = _hosts(allow_hosts)
        self._deny_hosts = _hosts(deny_hosts)
        self._extensions = _extensions(deny_extensions)
        self._tags, self._attributes, self._within = tuple(tags), tuple(attributes), within
        self._unique = unique

    def of(self, response: LinkSource) -> list[str]:
        """The absolute URLs of the links that are taken, in the page's order."""
        values = response.document.values(self._tags, self._attributes, self._within)
        urls: Iterable[str] = map(response.joiner.join, values)
        if self._unique:
            urls = dict.fromkeys(urls)
        return [url for url in urls if url.startswith(("http://", "https://")) and self.takes(url)]

    def takes(self, url: str) -> bool:
        """Whether an absolute URL is one of them."""
        if self._extensions and _extension(url) in self._extensions:
            return False
        if self._allow_hosts and not is_under(url, self._allow_hosts):
            return False
        if self._deny_hosts and is_under(url, self._deny_hosts):
            return False
        if self._allow and not any(pattern.search(url) for pattern in self._allow):
            return False
        return not any(pattern.search(url) for pattern in self._deny)


class Rule:
    """Links of a kind, the callback for their pages, and whether the rules look there too.

    Without a callback the pages are only followed; `follow` says otherwise.
    """

    def __init__(
        self,
        links: Links | None = None,
        callback: Callback = None,
        *,
        follow: bool | None = None,
        priority: int | None = None,
    ) -> None:
        self.links = links or Links()
        self.callback = callback
        self.follow = callback is None if follow is None else follow
        self.priority = priority


def host_of(url: str) -> str:
    """The host in small letters, without credentials and port."""
    authority = url.partition("://")[2]
    for mark in "/?#":
        authority = authority.partition(mark)[0]
    place = authority.rpartition("@")[2].lower()
    if place.startswith("["):
        return place.partition("]")[0] + "]"
    return place.partition(":")[0]


def is_under(url: str, hosts: Sequence[str]) -> bool:
    """Whether the URL's host is one of them or a subdomain of one."""
    host = host_of(url)
    return any(host == name or host.endswith(f".{name}") for name in hosts)


def _extension(url: str) -> str:
    path = url.partition("?")[0]
    dot = path.rfind(".", -8)
    # Behind the last slash, and not the end of a bare host name.
    if dot < 0 or path.find("/", dot) >= 0 or path.find("/", 8) < 0:
        return ""
    return path[dot + 1 :].lower()


def _extensions(names: Iterable[str]) -> frozenset[str]:
    # `response.links()` makes a choice for each page, and nearly always this one.
    return BINARY if names is BINARY else frozenset(name.lower().lstrip(".") for name in names)


def compiled(patterns: Patterns) -> list[re.Pattern[str]]:
    """Regular expressions, one or many; raises InvalidInput that shows a broken one."""
    listed = [patterns] if isinstance(patterns, str | re.Pattern) else patterns
    try:
        return [re.compile(pattern) for pattern in listed]
    except re.error as error:
        raise InvalidInput(f"{error.pattern!r} is not a regular expression: {error.msg}") from error


def _hosts(hosts: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(host.lower() for host in ([hosts] if isinstance(hosts, str) else hosts))
