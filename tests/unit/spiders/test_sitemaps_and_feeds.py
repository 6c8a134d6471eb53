"""Sitemaps and feeds: what real ones look like, and what attackers send (fault 59)."""

from __future__ import annotations

import gzip
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import TooLarge
from skep.spiders.authoring import sitemaps_and_feeds
from skep.spiders.authoring.sitemaps_and_feeds import (
    FeedEntry,
    Sitemap,
    read_feed,
    read_sitemap,
    unpacked,
)

URL = "https://example.org/sitemap.xml"
SITEMAP = b"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
<url><loc> https://example.org/a?b=1&amp;c=2 </loc><lastmod>2026-01-01</lastmod>
  <image:image><image:loc>https://example.org/i.png</image:loc></image:image></url>
<url><loc>/relative</loc></url><url><loc>ftp://example.org/no</loc></url>
<url><loc>https://example.org/a?b=1&amp;c=2</loc></url></urlset>"""
PAGES = ["https://example.org/a?b=1&c=2", "https://example.org/relative"]
RSS = b"""<rss version="2.0"><channel><title>Feed</title><link>https://example.org/</link>
<item><title>One</title><link>https://example.org/1</link><guid>g1</guid>
  <pubDate>Mon, 05 Jan 2026 10:00:00 GMT</pubDate><description>first</description></item>
<item><title>Two</title><guid>https://example.org/2</guid></item>
<item><title>No address</title></item></channel></rss>"""
ATOM = b"""<feed xmlns="http://www.w3.org/2005/Atom"><title>Feed</title>
<link rel="self" href="https://example.org/feed"/>
<entry><title>One</title><link rel="replies" href="/replies"/><link href="/1"/><id>urn:1</id>
<updated>2026-01-05T10:00:00Z</updated><summary>first</summary></entry></feed>"""

LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha">%s]>
<urlset><url><loc>https://example.org/&j;</loc></url>
<url><loc>https://example.org/good</loc></url></urlset>""" % b"".join(
    b'<!ENTITY %c "%s">' % (letter, b"&%c;" % (letter - 1) * 10) for letter in range(98, 107)
)
IN_AN_ATTRIBUTE = LAUGHS.replace(b"<url>", b'<url x="&j;">', 1)
OUTSIDE = b"""<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname"><!ENTITY % p SYSTEM
"http://127.0.0.1:1/x.dtd"> %p;]><urlset><url><loc>https://example.org/&e;</loc></url></urlset>"""
DEEP = b"<urlset>" + b"<url>" * 200_000
BOMB = gzip.compress(bytes(200 * 2**20), 9)


def test_a_sitemap_gives_its_pages_once() -> None:
    assert read_sitemap(SITEMAP, URL) == Sitemap(PAGES, [])


def test_a_gzipped_sitemap_is_the_same() -> None:
    assert read_sitemap(gzip.compress(SITEMAP), URL) == Sitemap(PAGES, [])


def test_an_index_gives_further_sitemaps() -> None:
    index = b"<sitemapindex><sitemap><loc>/a.xml.gz</loc></sitemap></sitemapindex>"
    assert read_sitemap(index, URL) == Sitemap([], ["https://example.org/a.xml.gz"])


def test_robots_txt_names_sitemaps() -> None:
    robots = b"User-agent: *\nDisallow: /x\nSitemap: https://example.org/s.xml\nsitemap:/t.xml\n"
    found = read_sitemap(robots, "https://example.org/robots.txt")
    assert found.sitemaps == ["https://example.org/s.xml", "https://example.org/t.xml"]


def test_a_plain_list_of_urls_is_a_sitemap_too() -> None:
    assert read_sitemap(b"https://example.org/1\n\nhttps://example.org/2\n", URL).pages == [
        "https://example.org/1",
        "https://example.org/2",
    ]


def test_rss_gives_entries_with_an_address() -> None:
    assert read_feed(RSS, URL) == [
        FeedEntry("https://example.org/1", "One", "g1", "Mon, 05 Jan 2026 10:00:00 GMT", "first"),
        FeedEntry("https://example.org/2", "Two", "https://example.org/2"),
    ]


def test_atom_takes_the_link_of_the_page() -> None:
    assert read_feed(ATOM, "https://example.org/feed") == [
        FeedEntry("https://example.org/1", "One", "urn:1", "2026-01-05T10:00:00Z", "first")
    ]


def test_a_file_that_breaks_off_gives_what_was_whole() -> None:
    assert read_sitemap(SITEMAP[:-60], URL).pages == PAGES
    assert [entry.title for entry in read_feed(RSS[:-60], URL)] == ["One", "Two"]


@pytest.mark.parametrize("attack", [LAUGHS, IN_AN_ATTRIBUTE, OUTSIDE, DEEP])
def test_attacks_cost_nothing_and_reveal_nothing(attack: bytes) -> None:
    """Fault 59: entities are not expanded, nothing is fetched, depth is bounded."""
    began = time.process_time()
    found = read_sitemap(attack, URL)
    entries = read_feed(attack, URL)
    assert time.process_time() - began < 1.0
    assert set(found.pages) <= {"https://example.org/", "https://example.org/good"}
    assert entries == []


def test_a_gzip_bomb_is_stopped_at_the_limit() -> None:
    """Fault 59."""
    with pytest.raises(TooLarge):
        unpacked(BOMB)
    with pytest.raises(TooLarge):
        read_sitemap(BOMB, URL)
    assert unpacked(b"\x1f\x8bnot gzip") == b""


def test_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 59: also a good file may be too long."""
    monkeypatch.setattr(sitemaps_and_feeds, "ENTRY_LIMIT", 10)
    urls = b"".join(b"<url><loc>/%d</loc></url>" % number for number in range(100))
    assert len(read_sitemap(b"<urlset>" + urls + b"</urlset>", URL).pages) == 10


@given(st.one_of(st.binary(max_size=300), st.builds(lambda cut, extra: RSS[:cut] + extra + SITEMAP,
       st.integers(0, len(RSS)), st.binary(max_size=20))))  # fmt: skip
def test_any_bytes_are_read_without_an_error(body: bytes) -> None:
    found = read_sitemap(body, URL)
    assert all(url.startswith(("http://", "https://")) for url in found.pages + found.sitemaps)
    assert all(entry.url.startswith(("http://", "https://")) for entry in read_feed(body, URL))
