"""Requests as spiders make them, and how they travel and come back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import skep
from skep.errors import InvalidInput, NotAUrl
from skep.model.request import NewRequest
from skep.spiders.authoring.request import Request, plain_request
from skep.spiders.driving.request_meta import opened, sealed
from skep.spiders.ports import Page

URL = "https://example.org/a"


class Mine(skep.Spider):
    def parse_item(self, response: skep.Response) -> None: ...


def back(new: NewRequest) -> Request:
    """Over the wire (JSON is the narrower one) and back as the request of a page."""
    meta = msgspec.json.decode(msgspec.json.encode(new.meta))
    return opened(Page(1, new.uri, "done", meta=meta))


def test_a_callback_is_kept_by_name() -> None:
    spider = Mine()
    assert Request(URL, spider.parse_item).callback == "parse_item"
    assert Request(URL, "parse_item").callback == "parse_item"
    assert Request(URL).callback == ""


def stray(response: skep.Response) -> None: ...


@pytest.mark.parametrize("callback", [lambda _: None, stray, Mine.parse_item, len, 7])
def test_an_unknown_method_of_the_spider_is_refused_at_once(callback: Any) -> None:
    with pytest.raises(InvalidInput, match="method of the spider"):
        Request(URL, callback)


def test_json_and_form_make_a_post() -> None:
    sent = Request(URL, json={"q": [1, 2]})
    assert (sent.method, sent.body) == ("POST", b'{"q":[1,2]}')
    assert sent.headers == {"Content-Type": "application/json"}
    form = Request(URL, form={"a": "ü b", "c": ["1", "2"]}, method="put")
    assert (form.method, form.body) == ("PUT", b"a=%C3%BC+b&c=1&c=2")
    own = Request(URL, json=1, headers={"content-type": "application/vnd.own+json"})
    assert own.headers == {"content-type": "application/vnd.own+json"}


def test_only_one_kind_of_body() -> None:
    with pytest.raises(InvalidInput, match="one of body, json and form"):
        Request(URL, json={}, form={})
    with pytest.raises(InvalidInput, match="one of body, json and form"):
        Request(URL, body="x", json={})


@pytest.mark.parametrize("priority", [-2, 6])
def test_priorities_end_somewhere(priority: int) -> None:
    with pytest.raises(InvalidInput, match="-1 to 5"):
        Request(URL, priority=priority)


def test_part_of_a_url_is_not_a_request() -> None:
    with pytest.raises(NotAUrl, match=r"response\.follow"):
        Request("/page/2")


def test_the_quick_way_makes_the_same_request() -> None:
    slow, quick = Request(URL, "parse_item"), plain_request(URL, "parse_item")
    assert all(getattr(slow, name) == getattr(quick, name) for name in Request.__slots__)


def test_replace_changes_a_copy() -> None:
    first = Request(URL, "parse_item", meta={"n": 1}, body=b"x", method="POST")
    second = first.replace(url=URL + "/b", again=True)
    assert (second.url, second.again, second.body) == (URL + "/b", True, b"x")
    second.meta["n"] = 2
    assert (first.again, first.meta) == (False, {"n": 1})


def test_a_plain_request_travels_light() -> None:
    assert sealed(Request(URL)) == NewRequest(URL)
    assert sealed(Request(URL, "parse_item")).meta == {"c": "parse_item"}


def test_everything_that_a_request_carries_comes_back() -> None:
    """R1: a run is continued by another process with the same requests."""
    request = Request(
        URL,
        "parse_item",
        errback="failed",
        method="POST",
        headers={"X-A": "1"},
        body=bytes(range(256)),
        meta={"a": [1, {"b": None}]},
        kwargs={"page": 2},
        priority=0,
        again=True,
        expires_in=60.0,
    )
    request.depth, request.follow = 3, True
    new = sealed(request)
    assert (new.method, new.body, new.priority, new.again, new.expires_in) == (
        "POST",
        bytes(range(256)),
        0,
        True,
        60.0,
    )
    again = back(new)
    for name in set(Request.__slots__) - {"priority", "again", "expires_in"}:
        assert getattr(again, name) == getattr(request, name), name
