"""Responses: lazily unpacked, decoded as browsers do, followed with little code."""

from __future__ import annotations

import codecs
import time
from random import Random

import pytest

from skep.archive.frames import Exchange, FrameMaker
from skep.errors import InvalidInput, Malformed
from skep.runtime.charset import charset_of
from skep.runtime.clock import SystemClock
from skep.spiders.authoring.request import Request
from skep.spiders.authoring.response import Response
from skep.spiders.driving.page_decoding import Unpacker
from skep.spiders.ports import Page

URL = "https://example.org/shop/list?page=1"
HTML = """<!doctype html><html><head><title>
  Two  hives </title></head><body>
<a href="/a">A</a> <a href="b?x=1#top">B</a> <a href="https://other.org/c">C</a>
<a href="/a#again">A</a> <a href="mailto:me@example.org">mail</a> <a name="x">no</a>
<a href="/file.PDF?v=1">file</a> <a href="#here">here</a> <area href="/map">
<img src="/i.png"></body></html>"""
LINKS = [
    "https://example.org/a",
    "https://example.org/shop/b?x=1",
    "https://other.org/c",
    "https://example.org/shop/list?page=1",
    "https://example.org/map",
]


def page_of(body: bytes, status: int = 200, kind: str = "text/html; charset=utf-8") -> Page:
    maker = FrameMaker(SystemClock(), Random(1))
    headers = (("Content-Type", kind), ("Set-Cookie", "a=1"), ("set-cookie", "b=2"))
    frames = maker.exchange_frames(
        Exchange(URL, status=status, response_headers=headers, body=body, address="192.0.2.7")
    )
    return Page(
        1, URL, "done", status, meta={"m": {"k": 1}, "d": 2}, frames=frames, elapsed_us=2500
    )


def test_a_page_of_the_queue_becomes_a_response() -> None:
    response = Unpacker().response(page_of(HTML.encode()))
    assert (response.url, response.status, response.ok) == (URL, 200, True)
    assert (response.meta, response.depth, response.elapsed) == ({"k": 1}, 2, 0.0025)
    assert response.body == HTML.encode()
    assert response.text == HTML
    assert response.address == "192.0.2.7"
    assert response.headers["content-TYPE"] == "text/html; charset=utf-8"
    assert response.headers.getlist("Set-Cookie") == ["a=1", "b=2"]
    assert response.headers.get("nothing") is None


def test_nothing_is_unpacked_before_it_is_looked_at() -> None:
    page = page_of(HTML.encode())
    page.frames = page.frames[:40]
    response = Unpacker().response(page)
    assert (response.status, response.meta) == (200, {"k": 1})
    with pytest.raises(Malformed):
        _ = response.body


def test_a_page_without_bytes_is_empty() -> None:
    response = Unpacker().response(Page(1, URL, "done", 204))
    assert (response.body, response.title, response.links()) == (b"", "", [])


def test_a_failure_has_its_kind_and_the_page_that_came_all_the_same() -> None:
    page = page_of(b"<title>gone</title>", 404)
    page.state, page.failure, page.detail = "dead", "status", "it answered 404"
    failure = Unpacker().failure(page)
    assert (failure.kind, failure.status, failure.url) == ("status", 404, URL)
    assert failure.response is not None
    assert failure.response.title == "gone"
    lost = Unpacker().failure(Page(2, URL, "expired"))
    assert (lost.kind, lost.status, lost.response) == ("expired", 0, None)


def test_title_and_links_in_one_parse() -> None:
    response = Response(URL, body=HTML)
    assert response.title == "Two hives"
    assert response.links() == LINKS
    assert response.links(allow=r"/shop/") == [LINKS[1], LINKS[3]]
    assert response.links(deny=[r"/shop/", "map"]) == [LINKS[0], LINKS[2]]
    assert response.links(hosts="other.org") == [LINKS[2]]


def test_css_and_xpath_are_parsels() -> None:
    response = Response(URL, body=HTML)
    assert response.css("a::text").getall()[0] == "A"
    assert response.xpath("//title/text()").get("").split() == ["Two", "hives"]
    feed = Response(URL, body="<r><Title>x</Title></r>", headers={"content-type": "text/xml"})
    assert feed.xpath("/r/Title/text()").get() == "x"


def test_follow_takes_parts_whole_urls_and_selectors() -> None:
    response = Response(URL, body=HTML)
    element = response.css("a")[1]
    attribute = response.css("a::attr(href)")[1]
    for link in ("b?x=1#top", element, attribute, LINKS[1]):
        assert response.follow(link).url == LINKS[1]
    request = response.follow("/a", "parse_item", meta={"n": 1}, priority=2)
    assert (request.callback, request.meta, request.priority) == ("parse_item", {"n": 1}, 2)


def test_follow_all_selects_or_takes_all_links() -> None:
    response = Response(URL, body=HTML)
    assert [request.url for request in response.follow_all()] == LINKS
    chosen = [request.url for request in response.follow_all(css="a")]
    assert chosen[:3] == LINKS[:3]
    assert not any(url.startswith("mailto:") for url in chosen)
    by_xpath = response.follow_all(xpath="//area/@href", callback="parse", meta={"x": 1})
    assert [(request.url, request.meta) for request in by_xpath] == [(LINKS[4], {"x": 1})]
    assert [request.url for request in response.follow_all(["/q", "/q"])] == [
        "https://example.org/q"
    ]
    with pytest.raises(InvalidInput, match="one of them"):
        list(response.follow_all(["/q"], css="a"))


def test_base_moves_relative_links() -> None:
    body = '<base href="/deep/er/"><a href="x">x</a><a href="/y">y</a>'
    response = Response(URL, body=body)
    assert response.links() == ["https://example.org/deep/er/x", "https://example.org/y"]
    assert response.urljoin("../z") == "https://example.org/deep/z"


@pytest.mark.parametrize(
    ("body", "kind", "charset"),
    [
        ("ä".encode(), "text/html; charset=UTF-8", "utf-8"),
        ("ä".encode("latin-1"), "text/html; charset=ISO-8859-1", "cp1252"),
        (codecs.BOM_UTF8 + b"x", "text/html; charset=latin-1", "utf-8"),
        (codecs.BOM_UTF16_LE + "x".encode("utf-16-le"), "", "utf-16-le"),
        (b'<meta charset="windows-1251"><p>x', "text/html", "cp1251"),
        (b'<meta http-equiv=Content-Type content="text/html; charset=euc-jp">', "", "euc_jp"),
        (b'<?xml version="1.0" encoding="gb2312"?>', "text/xml", "gb18030"),
        (b'<meta charset="utf-16">', "", "utf-8"),
        ("plain ä".encode(), "text/html", "utf-8"),
        ("cut ä".encode()[:-1], "text/html", "utf-8"),
        (b"\xe4\xf6\xfc and more", "text/html", "cp1252"),
        (b"x", "text/html; charset=nonsense", "utf-8"),
        (b"x", "text/html; charset=rot13", "utf-8"),
    ],
)
def test_charset_as_browsers_find_it(body: bytes, kind: str, charset: str) -> None:
    assert charset_of(body, kind) == charset
    assert isinstance(Response(URL, body=body, headers={"Content-Type": kind}).text, str)


def test_titles_and_links_of_other_charsets() -> None:
    body = '<title>Мёд</title><a href="/мёд">x</a>'.encode("cp1251")
    kind = "text/html; charset=windows-1251"
    response = Response(URL, body=body, headers={"Content-Type": kind})
    assert response.title == "Мёд"
    assert response.links() == ["https://example.org/мёд"]


@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"\xff\xfe\xfd", b"<title>\xff</title><a href='/\xe4'>"]
)
def test_bytes_that_are_no_text_are_read_all_the_same(body: bytes) -> None:
    response = Response(URL, body=body, headers={"Content-Type": "text/html; charset=utf-8"})
    assert isinstance(response.title, str)
    assert all(link.isprintable() for link in response.links())
    assert response.css("nothing").get() is None


def test_deep_pages_are_read_to_their_ground() -> None:
    body = "<div>" * 2000 + "<a href='/deep'>deep</a>" + "</div>" * 2000
    response = Response(URL, body=body)
    assert response.links() == ["https://example.org/deep"]
    assert response.css("a::text").get() == "deep"


def test_an_xml_bomb_costs_nothing_through_selectors() -> None:
    """Fault 59."""
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE x [<!ENTITY e0 "ha">{entities}]><r a="&e9;"><t>&e9;</t><u>end</u></r>'
    response = Response(URL, body=bomb, headers={"Content-Type": "application/xml"})
    began = time.process_time()
    found = response.xpath("string(//t)").get("")
    assert time.process_time() - began < 1.0
    assert len(found) < 1000


def test_a_byte_order_mark_is_not_text() -> None:
    assert Response(URL, body=codecs.BOM_UTF8 + b"x").text == "x"


def test_json_in_the_forms_that_servers_send() -> None:
    assert Response(URL, body=b'{"a": [1]}').json() == {"a": [1]}
    assert Response(URL, body=codecs.BOM_UTF8 + b"[1]").json() == [1]
    latin = Response(URL, body=b'"\xe4"', headers={"content-type": "x; charset=latin-1"})
    assert latin.json() == "ä"
    with pytest.raises(InvalidInput, match="not JSON"):
        Response(URL, body=b"<html>").json()


def test_json_that_is_too_deep_is_an_error_and_no_crash() -> None:
    """Fault 59."""
    with pytest.raises(InvalidInput, match="not JSON"):
        Response(URL, body=b"[" * 200_000).json()


def test_a_response_can_be_made_by_hand() -> None:
    response = Response(URL, status=500, body="x", request=Request(URL, meta={"a": 1}))
    assert not response.ok
    assert response.meta == {"a": 1}
