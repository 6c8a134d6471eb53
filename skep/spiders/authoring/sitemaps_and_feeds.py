"""Sitemaps and feeds, read safely: their content is not trusted.

Runs in the spider's process. No entity is expanded, nothing is loaded from anywhere, and
size, depth and number of entries are bounded. What is broken gives as much as could be
read before it breaks off.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import msgspec

from skep.errors import TooLarge
from skep.spiders.authoring.absolute_urls import Joiner

#: Of the sitemap standard: 50 MB unpacked, 50,000 entries.
SIZE_LIMIT = 50 * 2**20
ENTRY_LIMIT = 50_000
#: Elements inside each other; a feed has six.
DEPTH_LIMIT = 64
#: Sitemap indexes inside each other.
NESTING_LIMIT = 4
URL_LIMIT = 8000
TEXT_LIMIT = 10_000

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_IN_ROBOTS = re.compile(rb"^[ \t]*sitemap[ \t]*:[ \t]*(\S{1,8000})", re.IGNORECASE | re.MULTILINE)


class Sitemap(msgspec.Struct, frozen=True):
    """Addresses of pages, and of further sitemaps."""

    pages: list[str]
    sitemaps: list[str]


class FeedEntry(msgspec.Struct, frozen=True):
    """One entry of a feed, as far as it says so."""

    url: str
    title: str = ""
    id: str = ""
    published: str = ""
    summary: str = ""


def read_sitemap(body: bytes, url: str) -> Sitemap:
    """A sitemap, an index of them, a plain list of URLs or a robots.txt, gzipped or not."""
    body = unpacked(body)
    if b"<" not in body[:2000]:
        return _plain(body, url)
    pages: list[str] = []
    sitemaps: list[str] = []
    join = Joiner(url).join
    for path, text in _texts(body):
        if path[-1] == "loc" and len(path) > 1 and len(text) <= URL_LIMIT:
            target = {"url": pages, "sitemap": sitemaps}.get(path[-2])
            if target is not None:
                target.append(join(text))
    return Sitemap(_pages_only(pages), _pages_only(sitemaps))


def _plain(body: bytes, url: str) -> Sitemap:
    join = Joiner(url).join
    if named := _IN_ROBOTS.findall(body):
        return Sitemap([], _pages_only([join(line.decode("utf-8", "replace")) for line in named]))
    lines = (line.strip() for line in body.decode("utf-8", "replace").splitlines())
    return Sitemap(_pages_only([join(line) for line in lines if "://" in line[:12]]), [])


def read_feed(body: bytes, url: str) -> list[FeedEntry]:
    """The entries of an RSS or Atom feed that have an address, in the feed's order."""
    join = Joiner(url).join
    entries = []
    for fields in _entries(unpacked(body)):
        link = join(fields.pop("url", "") or _permanent(fields.get("id", "")))
        if link.startswith(("http://", "https://")) and len(link) <= URL_LIMIT:
            entries.append(FeedEntry(link, **fields))
    return entries


def _permanent(entry_id: str) -> str:
    return entry_id if entry_id.startswith(("http://", "https://")) else "about:none"


_FIELDS = {
    "link": "url",
    "title": "title",
    "guid": "id",
    "id": "id",
    "pubDate": "published",
    "published": "published",
    "updated": "published",
    "date": "published",
    "description": "summary",
    "summary": "summary",
}


def _entries(body: bytes) -> Iterator[dict[str, str]]:
    """Per entry its fields: the first text of each wins."""
    fields: dict[str, str] = {}
    for path, element in _elements(body):
        if path[-1] in {"item", "entry"}:
            yield fields
            fields = {}
        elif len(path) > 1 and path[-2] in {"item", "entry"} and path[-1] in _FIELDS:
            text = (element.text or "").strip()[:TEXT_LIMIT] or _atom_link(path[-1], element)
            if text:
                fields.setdefault(_FIELDS[path[-1]], text)


def _atom_link(tag: str, element: Any) -> str:
    """`<link href>` of Atom: the page itself, not its comments or its feed."""
    if tag != "link" or element.get("rel", "alternate") != "alternate":
        return ""
    return str(element.get("href", ""))


def _texts(body: bytes) -> Iterator[tuple[list[str], str]]:
    for path, element in _elements(body):
        if text := (element.text or "").strip():
            yield path, text


def _elements(body: bytes) -> Iterator[tuple[list[str], Any]]:
    """(names from the root, element) of each element as it ends, which is then let go."""
    from lxml import etree

    events = etree.iterparse(
        BytesIO(body),
        events=("start", "end"),
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        recover=True,
    )
    path: list[str] = []
    ended = 0
    try:
        for event, element in events:
            if event == "start":
                path.append(_local(element.tag))
                if len(path) > DEPTH_LIMIT:
                    return
                continue
            yield path, element
            path.pop()
            ended += 1
            if ended > ENTRY_LIMIT * 8:
                return
            _let_go(element)
    except etree.XMLSyntaxError:
        return  # what was read so far is what there is


def _local(tag: Any) -> str:
    """Without its namespace: real feeds mix and forget them."""
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _let_go(element: Any) -> None:
    parent = element.getparent()
    # Children are still read by their parent's end event; only whole entries are let go.
    if parent is not None and _local(element.tag) in {"url", "sitemap", "item", "entry"}:
        element.clear()
        while element.getprevious() is not None:
            del parent[0]


def unpacked(body: bytes, limit: int = SIZE_LIMIT) -> bytes:
    """The bytes without gzip, at most `limit` of them; raises TooLarge."""
    if body.startswith(_GZIP):
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        try:
            body = unpacker.decompress(body, limit + 1)
        except zlib.error:
            return b""
    if len(body) > limit:
        raise TooLarge(f"the file unpacks to more than {limit} bytes")
    return body


def _pages_only(urls: list[str]) -> list[str]:
    good = (url for url in dict.fromkeys(urls) if url.startswith(("http://", "https://")))
    return [url for url in good if len(url) <= URL_LIMIT][:ENTRY_LIMIT]
