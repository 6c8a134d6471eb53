"""The pure parts of the http downloader: targets, heads, headers, politeness, verdicts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.downloaders.curl_failures import classify, short
from skep.downloaders.libcurl.host_queue import HostQueue
from skep.downloaders.libcurl.request_headers import (
    BadHeader,
    for_next_hop,
    request_headers,
    run_headers,
)
from skep.downloaders.libcurl.response_head import NO_HEAD, read_head, retry_after
from skep.downloaders.target_url import BadTarget, join_target, parse_target
from skep.model.failures.failure_class import FailureClass


@pytest.mark.parametrize(
    ("uri", "url", "origin"),
    [
        ("http://a.test/x?y=1", "http://a.test/x?y=1", "http://a.test:80"),
        ("http://a.test", "http://a.test/", "http://a.test:80"),
        ("http://a.test?q=1", "http://a.test/?q=1", "http://a.test:80"),
        ("HTTP://A.Test:80/x#part", "http://a.test/x", "http://a.test:80"),
        ("https://a.test:443/x", "https://a.test:443/x", "https://a.test:443"),
        ("https://a.test:80/x", "https://a.test:80/x", "https://a.test:80"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x", "http://[::1]:8080"),
        ("http://u:p@a.test/x", "http://a.test/x", "http://a.test:80"),
        ("http://bücher.test/ü?ö", "http://xn--bcher-kva.test/%C3%BC?%C3%B6",
         "http://xn--bcher-kva.test:80"),
        ("http://a.test/a b", "http://a.test/a%20b", "http://a.test:80"),
        ("http://a.test/a%20b%2F", "http://a.test/a%20b%2F", "http://a.test:80"),
    ],
)  # fmt: skip
def test_targets(uri: str, url: str, origin: str) -> None:
    target = parse_target(uri)
    assert (target.url, target.origin) == (url, origin)
    assert "@" not in target.url


def test_a_login_is_taken_out_and_decoded() -> None:
    assert parse_target("http://a%3Ab:c%40d@x.test/").login == ("a:b", "c@d")
    assert parse_target("http://only@x.test/").login == ("only", "")
    assert parse_target("http://x.test/").login == ()


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "http://a.test/b"),
        ("b", "http://a.test/x/b"),
        ("../b", "http://a.test/b"),
        ("?q", "http://a.test/x/y?q"),
        ("//c.test/d", "http://c.test/d"),
        ("https://c.test", "https://c.test/"),
        (" /spaces ", "http://a.test/spaces"),
        ("http://good.test@evil.test/", "http://evil.test/"),
    ],
)
def test_redirect_targets(location: str, url: str) -> None:
    assert join_target("http://a.test/x/y", location).url == url


@pytest.mark.parametrize("location", ["file:///x", "data:,x", "javascript:1", "http://[", "http:"])
def test_bad_redirect_targets(location: str) -> None:
    with pytest.raises(BadTarget):
        join_target("https://a.test/", location)


@given(st.text(max_size=60))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    """Whatever it is, libcurl is handed plain ASCII without a login or a line break."""
    for uri in (text, f"http://{text}", f"http://a.test/{text}"):
        try:
            url = parse_target(uri).url
        except BadTarget:
            continue
        assert url.isascii()
        assert url.isprintable()
        assert " " not in url
        assert "@" not in url.split("/")[2]


def test_only_the_final_head_counts() -> None:
    lines = [b"HTTP/1.1 100 Continue\r\n", b"A: 0\r\n", b"\r\n", b"HTTP/2 404 \r\n",
             b"A: 1\r\n", b" folded: 2\r\n", b"no colon\r\n", b"a:2\r\n", b"\r\n",
             b"T: 3\r\n"]  # fmt: skip
    head = read_head(lines)
    assert (head.status, head.reason) == (404, "")
    assert list(head.headers) == [("A", "1"), ("a", "2")]
    assert (head.find("a"), head.first("a"), head.find("t")) == ("1, 2", "1", None)
    assert read_head([b"nonsense\r\n"]) is NO_HEAD


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("99999999999999", 86_400.0),
        ("Thu, 01 Jan 1970 00:17:40 GMT", 60.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("-5", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, now=1000.0) == seconds


def test_headers_merge_without_regard_to_case() -> None:
    run = run_headers({"accept": "text/html", "X-Run": "1"})
    sent = request_headers(run, {"x-run": "2", "X-Empty": "", "Content-Length": "9"}).lines
    assert b"accept: text/html" in sent
    assert b"x-run: 2" in sent
    assert b"X-Empty;" in sent
    assert not [line for line in sent if line.lower().startswith(b"content-length")]
    assert request_headers(run, {}) is run


@pytest.mark.parametrize("headers", [{"A": "b\r\nC: d"}, {"A\n": "b"}, {"": "b"}, {"A": "\0"}])
def test_headers_that_would_break_the_request(headers: dict[str, str]) -> None:
    with pytest.raises(BadHeader):
        run_headers(headers)


def test_secrets_are_dropped_for_another_origin_and_never_shown() -> None:
    """Fault 56."""
    run = run_headers({"Authorization": "s", "cookie": "s", "Host": "h", "X": "y"})
    assert not {name.lower() for name, _ in run.shown} & {"authorization", "cookie"}
    assert for_next_hop(run, same_origin=True, with_body=True) is run
    away = for_next_hop(run, same_origin=False, with_body=True)
    assert set(away.fields) == {"accept", "accept-encoding", "user-agent", "x"}


def test_hosts_take_turns_and_keep_their_limit() -> None:
    gate: HostQueue[str] = HostQueue(at_once=2, delay=0.0)
    for number in range(3):
        gate.offer("a", f"a{number}")
    gate.offer("b", "b0")
    assert [gate.take(0.0) for _ in range(4)] == ["a0", "b0", "a1", None]
    gate.leave("a", 0.0)
    assert gate.take(0.0) == "a2"
    assert gate.next_due() is None


def test_a_delay_counts_from_start_to_start_even_when_idle() -> None:
    gate: HostQueue[str] = HostQueue(at_once=5, delay=10.0)
    gate.offer("a", "a0")
    assert gate.take(100.0) == "a0"
    gate.leave("a", 101.0)
    gate.offer("a", "a1")
    gate.offer("a", "redirect", first=True)
    gate.offer("b", "b0")
    assert [gate.take(105.0), gate.take(105.0)] == ["b0", None]
    assert gate.next_due() == 110.0
    assert [gate.take(110.0), gate.take(110.0)] == ["redirect", None]
    assert gate.drain() == ["a1"]
    assert gate.take(1e9) is None


@pytest.mark.parametrize(
    ("number", "message", "failure"),
    [
        (6, "Could not resolve host: x", FailureClass.NETWORK),
        (7, "Failed to connect", FailureClass.NETWORK),
        (28, "Operation timed out", FailureClass.TIMEOUT),
        (28, "Operation too slow", FailureClass.TIMEOUT),
        (56, "Recv failure: Connection reset by peer", FailureClass.NETWORK),
        (56, "Illegal or missing hexadecimal sequence in chunked-encoding", FailureClass.CONTENT),
        (56, "Too large response headers: 400000 > 307200", FailureClass.LIMIT),
        (60, "SSL certificate problem", FailureClass.NETWORK),
        (999, "", FailureClass.NETWORK),
    ],
)
def test_verdicts(number: int, message: str, failure: FailureClass) -> None:
    found, detail = classify(number, message, 5.0)
    assert found is failure
    assert detail


def test_details_are_short_lines() -> None:
    assert short("a\r\n b\tc" + "x" * 999).startswith("a b cx")
    assert len(short("x" * 999)) == 300
