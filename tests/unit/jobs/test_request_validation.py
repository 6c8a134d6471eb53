"""What comes in at the door: URLs, fingerprints, headers, meta. Pure."""

from __future__ import annotations

from random import Random
from urllib.parse import urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import InvalidInput, NotAUrl, SkepError, TooLarge, UnknownScheme
from skep.jobs.request_validation import BATCH_LIMIT, Validator, check_job
from skep.model.hosts.host import site_of
from skep.model.request import BODY_LIMIT, URI_LIMIT, NewRequest, Offered
from skep.model.run import RunSettings
from skep.store.ports.requests import RequestRow

VALIDATOR = Validator(("http", "https"), Random(1))
NOW = 1000.0


def row(offered: Offered) -> RequestRow:
    (one,) = VALIDATOR.rows([offered], 5, NOW)
    return one


NORMAL = {
    "http://Example.COM": "http://example.com/",
    "HTTP://example.com/A": "http://example.com/A",
    "http://example.com?q=1": "http://example.com/?q=1",
    "http://example.com/#top": "http://example.com/",
    "http://example.com:80/": "http://example.com/",
    "https://example.com:443/": "https://example.com/",
    "http://example.com:443/": "http://example.com:443/",
    "http://example.com:/": "http://example.com/",
    "http://example.com:0080/": "http://example.com/",
    "http://example.com:8080/x": "http://example.com:8080/x",
    "http://b\u00fccher.example/\u00e9": "http://xn--bcher-kva.example/%C3%A9",
    "http://B\u00dcCHER.example/": "http://xn--bcher-kva.example/",
    "http://\u4f8b\u3048\uff0e\u30c6\u30b9\u30c8/": "http://xn--r8jz45g.xn--zckzah/",
    "http://[::1]:8080/x": "http://[::1]:8080/x",
    "http://[2001:DB8::1]/": "http://[2001:db8::1]/",
    "http://[::1]/\u00e9": "http://[::1]/%C3%A9",
    "http://User:Pa%20ss@example.com/": "http://User:Pa%20ss@example.com/",
    "http://u@x:p@example.com/": "http://u%40x:p@example.com/",
    "http://@example.com/": "http://example.com/",
    "http://example.com/a\\b": "http://example.com/a%5Cb",
    'http://example.com/<a>"': "http://example.com/%3Ca%3E%22",
    "http://example.com/%zz?a=b&c[]=d": "http://example.com/%zz?a=b&c[]=d",
    "http://a_b.example/": "http://a_b.example/",
    "http://127.0.0.1/": "http://127.0.0.1/",
}


@pytest.mark.parametrize("text", NORMAL)
def test_a_url_as_it_is_kept(text: str) -> None:
    """D1: ASCII, without fragment, scheme and host in small letters."""
    assert row(text).uri == NORMAL[text]


@pytest.mark.parametrize("text", NORMAL)
def test_equal_urls_have_equal_fingerprints(text: str) -> None:
    """R5: written in two ways it is one request, alone or as a struct."""
    kept = row(NORMAL[text])
    assert row(text).fingerprint == kept.fingerprint
    assert row(NewRequest(text)).fingerprint == kept.fingerprint
    assert kept.uri == NORMAL[text], "and its form is final"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com",
        "//example.com/",
        "http:/example.com",
        "http://",
        "http:///path",
        "http://:80/",
        "http://exa mple.com/",
        "http://example.com/a b",
        " http://example.com/",
        "http://example.com/\n",
        "http://example.com/\x00",
        "http://exam\x00ple.com/",
        "http://example.com/\x7f",
        "http://example.com\\@evil.com/",
        "http://example.com:port/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:99999999999/",
        "http://example.com:\u0661/",
        "http://[::1/",
        "http://::1/",
        "http://[::1]x/",
        "http://[fe80::1%25eth0]/",
        "http://[zz]/",
        "http://[]/",
        "http://evil.c\u2100.example.com/",
        "http://a\uff0fb/",
        "http://" + "a" * 254 + "/",
        "http://" + "\u00e9" * 64 + ".com/",
        "http://user@/",
        "http://a,b/",
        "http://\ud800/",
        "http://a/\ud800",
    ],
)
def test_invalid_urls(text: str) -> None:
    """D1, fault 54: hosts that two programs could read in two ways are none."""
    with pytest.raises(NotAUrl):
        row(text)


@pytest.mark.parametrize("text", ["ftp://a/", "file:///etc/passwd", "javascript://a/", "git://a/"])
def test_schemes_without_a_downloader(text: str) -> None:
    """D6: the error names the schemes that have one."""
    with pytest.raises((UnknownScheme, NotAUrl)) as refused:
        row(text)
    if "://a" in text:
        assert "http, https" in refused.value.detail


def test_a_url_has_a_length() -> None:
    prefix = "http://a/"
    assert len(row(prefix + "x" * (URI_LIMIT - len(prefix))).uri) == URI_LIMIT
    with pytest.raises(TooLarge):
        row(prefix + "x" * (URI_LIMIT - len(prefix) + 1))
    with pytest.raises(TooLarge, match="encoded"):
        row(prefix + "\u00e9" * (URI_LIMIT // 3))


anything = st.text() | st.builds(
    "{}://{}{}".format,
    st.sampled_from(["http", "https", "HTTP", "ftp"]),
    st.text(min_size=1) | st.from_regex(r"[a-zA-Z0-9.:@\[\]%_-]{1,30}", fullmatch=True),
    st.text() | st.from_regex(r"[/?#\\][ -~]{0,30}", fullmatch=True),
)


@given(anything)
def test_any_text_is_kept_in_a_final_form_or_refused(text: str) -> None:
    """D1: nothing but a SkepError is ever raised; normalising twice changes nothing."""
    try:
        kept = row(text)
    except SkepError:
        return
    assert kept.uri.isascii()
    assert kept.uri.isprintable()
    assert " " not in kept.uri
    again = row(kept.uri)
    assert again == kept
    assert row(text).fingerprint == kept.fingerprint
    # Another reader of URLs sees the same host.
    assert site_of(urlsplit(kept.uri).hostname or "") == kept.host.strip("[]")


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
requests = st.builds(
    NewRequest,
    uri=st.just("http://a/") | anything,
    method=st.just("GET") | st.text(max_size=25),
    headers=st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=3),
    body=st.binary(max_size=20),
    priority=st.none() | st.integers(-3, 7),
    meta=st.dictionaries(st.text(max_size=5), json_like, max_size=3),
    fingerprint=st.text(max_size=10),
    expires_in=st.none() | st.floats(),
    again=st.booleans(),
)


@given(requests)
def test_any_request_is_kept_in_bounds_or_refused(request: NewRequest) -> None:
    """D1, D2, fault 70: what is kept can be sent to an agent and given back as JSON."""
    try:
        kept = row(request)
    except SkepError:
        return
    assert -1 <= kept.priority <= 5
    assert len(kept.fingerprint) == 16
    assert kept.expires_at is None or NOW <= kept.expires_at < 1e12
    if kept.arguments:
        method, headers, body, meta = msgspec.msgpack.decode(kept.arguments)
        assert (method, headers, body) == (request.method, request.headers, request.body)
        assert msgspec.json.decode(msgspec.json.encode(meta)) is not None
        assert all("\n" not in text and "\r" not in text for text in headers.values())
    else:
        assert (request.method, request.headers, request.body, request.meta) == ("GET", {}, b"", {})


def test_method_and_body_make_another_request() -> None:
    """R5: only a plain GET is known by its URL alone."""
    base = "http://a/"
    prints = {
        row(base).fingerprint,
        row(NewRequest(base, method="POST")).fingerprint,
        row(NewRequest(base, method="POST", body=b"x")).fingerprint,
        row(NewRequest(base, method="GET", body=b"x")).fingerprint,
        row(NewRequest(base, fingerprint="mine")).fingerprint,
        row(NewRequest(base, again=True)).fingerprint,
        row(NewRequest(base, again=True)).fingerprint,
    }
    assert len(prints) == 7
    assert row(NewRequest(base, headers={"X": "y"})).fingerprint == row(base).fingerprint
    own = NewRequest("http://b/", fingerprint="mine")
    assert row(own).fingerprint == row(NewRequest(base, fingerprint="mine")).fingerprint


def test_a_batch_has_a_size() -> None:
    with pytest.raises(TooLarge, match=str(BATCH_LIMIT)):
        VALIDATOR.rows(["http://a/"] * (BATCH_LIMIT + 1), 5, NOW)
    with pytest.raises(TooLarge, match="body"):
        row(NewRequest("http://a/", method="POST", body=b"x" * (BODY_LIMIT + 1)))


def test_the_error_names_the_place_and_keeps_its_class() -> None:
    """D1: the first that is wrong stops the batch."""
    batch: list[Offered] = ["http://a/", NewRequest("ftp://b/"), "nonsense"]
    with pytest.raises(UnknownScheme, match=r"^request 1: "):
        VALIDATOR.rows(batch, 5, NOW)


@pytest.mark.parametrize(
    "settings",
    [
        RunSettings(downloader="gopher"),
        RunSettings(headers={"A": "b\nC: d"}),
        RunSettings(headers={"": "b"}),
        RunSettings(headers={"A B": "c"}),
    ],
    ids=str,
)
def test_settings_that_no_agent_could_follow(settings: RunSettings) -> None:
    """D1, D6, fault 70."""
    with pytest.raises(InvalidInput):
        VALIDATOR.check_settings(settings)


def test_jobs_have_plain_names() -> None:
    check_job("crawl of b\u00fccher, every day")
    for name in ("a\nb", "\x1b[2J", "x" * 201):
        with pytest.raises(InvalidInput):
            check_job(name)


@pytest.mark.parametrize("kind", ["python", "shell"])
def test_code_takes_any_scheme(kind: str) -> None:
    """D6: what a URI means is up to the code; all other kinds need a downloader for it."""
    validator = Validator(("http", "https"), Random(1))
    (row,) = validator.rows(["registry://one/2"], 0, 0.0, kind)
    assert (row.uri, row.host) == ("registry://one/2", "one")
    with pytest.raises(UnknownScheme, match="registry"):
        validator.rows(["registry://one/2"], 0, 0.0)
    with pytest.raises(NotAUrl):
        validator.rows(["not a uri"], 0, 0.0, kind)
