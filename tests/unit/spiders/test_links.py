"""Links: the fast way to absolute URLs is the right way, and rules choose among them."""

from __future__ import annotations

import string
from urllib.parse import urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import InvalidInput
from skep.spiders.authoring.absolute_urls import Joiner
from skep.spiders.authoring.links import Links, Rule, host_of, is_under
from skep.spiders.authoring.request import callback_name
from skep.spiders.authoring.response import Response

BASES = [
    "http://example.org",
    "http://example.org/",
    "https://example.org:8443/a/b/c?d=e/f#g",
    "http://user:secret@example.org/a/./b/../c/",
    "http://example.org/a?x=/y/z",
]
#: Without `;`, of which the library has a notion of its own that browsers do not share.
CLEAN = string.ascii_letters + string.digits + "/.-_~?#=&:%@+"


def by_the_library(base: str, link: str) -> str:
    try:
        return urljoin(base, link).partition("#")[0]
    except ValueError:
        return ""


def same(left: str, right: str) -> bool:
    """The library drops the `?` of an empty query, and the `/` is optional on a bare host."""
    return left.rstrip("?") == right.rstrip("?")


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    "link",
    [
        "/x", "x", "x/y.html", "../x", "./x", "?q=1", "#f", "//other.org/x", "/a/../b", "/.hidden",
        "http://other.org", "HTTP://other.org/x", "https://other.org/x#f", "mailto:a@b.c",
        "javascript:void(0)", "x:y", "x?y=http://z", "..", ".", "/x//y", "tel:+49",
    ],
)  # fmt: skip
def test_links_of_every_shape(base: str, link: str) -> None:
    assert same(Joiner(base).join(link), by_the_library(base, link))


@given(st.sampled_from(BASES), st.text(CLEAN, min_size=1, max_size=30))
def test_the_fast_way_agrees_with_the_library(base: str, link: str) -> None:
    assert same(Joiner(base).join(link), by_the_library(base, link))


@given(st.sampled_from(BASES), st.text(max_size=40))
def test_any_text_gives_a_url_without_white_space_or_nothing(base: str, link: str) -> None:
    joined = Joiner(base).join(link)
    assert not any(ord(letter) <= 32 or letter == "\x7f" for letter in joined)
    joined.encode()


def test_white_space_in_links_is_what_browsers_make_of_it() -> None:
    joiner = Joiner("http://example.org/a/")
    assert joiner.join("  /x \n") == "http://example.org/x"
    assert joiner.join("/two\nlines") == "http://example.org/twolines"
    assert joiner.join("/two words") == "http://example.org/two%20words"


def page(*links: str) -> Response:
    body = "".join(f'<a href="{link}">x</a>' for link in links)
    return Response("http://example.org/", body=body)


def test_binary_files_are_left_out_unless_they_are_wanted() -> None:
    response = page("/a.jpg", "/b.PDF?x=1", "/c.html", "/d.tar.gz", "http://files.zip", "/e/v1.2/")
    kept = ["http://example.org/c.html", "http://files.zip", "http://example.org/e/v1.2/"]
    assert Links().of(response) == kept
    assert len(Links(deny_extensions=()).of(response)) == 6
    assert "http://example.org/c.html" not in Links(deny_extensions=[".html"]).of(response)


def test_hosts_come_with_their_subdomains_and_nothing_else() -> None:
    urls = ["http://a.org/x", "http://www.A.org:80/x", "http://ba.org/x", "http://u:p@a.org"]
    assert [is_under(url, ("a.org",)) for url in urls] == [True, True, False, True]
    assert host_of("http://[2001:DB8::1]:80/x") == "[2001:db8::1]"
    response = page("http://a.org/x", "http://b.org/x")
    assert Links(allow_hosts="a.org").of(response) == ["http://a.org/x"]
    assert Links(deny_hosts=["a.org"]).of(response) == ["http://b.org/x"]


def test_other_tags_attributes_and_parts_of_the_page() -> None:
    body = (
        '<nav><a href="/n">n</a></nav><main><a href="/m">m</a><a href="/m">m</a></main>'
        '<img src="/i.png"><footer><a href="/f">f</a></footer>'
    )
    response = Response("http://example.org/", body=body)
    images = Links(tags=["img"], attributes=["src"], deny_extensions=())
    assert images.of(response) == ["http://example.org/i.png"]
    assert Links(within="main").of(response) == ["http://example.org/m"]
    assert len(Links(within="main", unique=False).of(response)) == 2
    both = Links(within="nav, footer").of(response)
    assert both == ["http://example.org/n", "http://example.org/f"]


def test_a_broken_pattern_is_shown() -> None:
    with pytest.raises(InvalidInput, match=r"'\(' is not a regular expression"):
        Links(allow="(")


def test_a_rule_without_callback_follows_by_itself() -> None:
    assert Rule().follow
    assert not Rule(callback="parse_item").follow
    assert Rule(callback="parse_item", follow=True).follow
    assert callback_name(Rule(callback="parse_item").callback) == "parse_item"
