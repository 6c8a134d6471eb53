"""Content rules: what is kept of a page (A5), however broken the page is."""

from __future__ import annotations

import io
import json
import warnings
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator as WarcioIterator
from zstandard import ZstdDecompressor

from skep.archive.frames import Cut, Exchange, Extract, read_records
from skep.downloaders import content_rules
from skep.downloaders.content_child import ContentPage, ContentSetup, ContentWorker
from skep.downloaders.content_rules import BadRules, CutContent, Cutting, OverSize, Unmatched
from skep.errors import InvalidInput
from skep.jobs.request_validation import check_content
from skep.model.content_rules import ContentRules, ContentStep
from skep.model.run import RunSettings

with warnings.catch_warnings():  # FastWARC 1.1 warns about its own old names when imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator, WarcRecordType

PAGE = """<html><head><meta charset="utf-8"><title>T</title></head><body>
<article><h1>Äpfel &amp; more</h1><p>one</p></article><article><p>two</p></article>
<a href="/next">next</a></body></html>""".encode()
HTML = "text/html; charset=utf-8"
DATA = json.dumps({"items": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]}).encode()


def cut(body: bytes, kind: str, *steps: dict[str, Any], **rules: Any) -> CutContent:
    made = tuple(ContentStep(**step) for step in steps)
    return Cutting(ContentRules(made, **rules)).cut(body, kind)


@pytest.mark.parametrize(
    ("step", "body", "kind"),
    [
        ({"css": "h1"}, "<h1>Äpfel &amp; more</h1>", HTML),
        ({"css": "h1::text"}, "Äpfel & more", "text/plain; charset=utf-8"),
        ({"css": "article p"}, "<p>one</p>\n<p>two</p>", HTML),
        ({"css": "a::attr(href)"}, "/next", "text/plain; charset=utf-8"),
        ({"xpath": "//article[1]/p/text()"}, "one", "text/plain; charset=utf-8"),
        ({"xpath": "//a/ancestor::body/a"}, '<a href="/next">next</a>', HTML),
        ({"xpath": "count(//article)"}, "2.0", "text/plain; charset=utf-8"),
        ({"regex": r"<p>(\w+)</p>"}, "one\ntwo", HTML),
        ({"regex": r"Äp\w+"}, "Äpfel", HTML),
        ({"regex": r"<(p)>o|(t)wo"}, "p\nt", HTML),
        ({"first": 6}, "<html>", HTML),
    ],
    ids=str,
)
def test_one_step_of_each_kind(step: dict[str, Any], body: str, kind: str) -> None:
    kept = cut(PAGE, HTML, step)
    assert (kept.body.decode(), kept.content_type) == (body, kind)
    assert kept.said == "{}={}".format(*next(iter(step.items()))).replace("Ä", r"\xc4")
    assert kept.is_prefix == ("first" in step)


def test_jsonpath_keeps_a_list() -> None:
    kept = cut(DATA, "application/json", {"jsonpath": "$.items[*].name"})
    assert (kept.body, kept.content_type) == (b'["a","b"]', "application/json")
    odd = b'\xef\xbb\xbf{"a": NaN, "b": "\\ud800", "c": 1e400}'
    assert json.loads(cut(odd, "", {"jsonpath": "$.b"}).body) == ["\ud800"]
    assert json.loads(cut(odd, "", {"jsonpath": "$.c"}).body) == [None], "JSON has no infinity"


def test_steps_work_on_what_the_step_before_kept() -> None:
    steps = ({"css": "article"}, {"regex": r"<p>.*?</p>"}, {"first": 6})
    kept = cut(PAGE, HTML, *steps)
    assert kept.body == b"<p>one"
    assert kept.said == "css=article; regex=<p>.*?</p>; first=6"
    assert not kept.is_prefix


def test_what_changes_nothing_is_not_a_cut() -> None:
    assert cut(PAGE, HTML, {"first": 10_000}, max_bytes=10_000) == CutContent(PAGE, HTML)
    assert cut(PAGE, HTML) == CutContent(PAGE, HTML)


@pytest.mark.parametrize("step", [{"css": "nav"}, {"regex": "nope"}, {"jsonpath": "$.x"}], ids=str)
def test_nothing_matches(step: dict[str, Any]) -> None:
    nothing = cut(PAGE, HTML, step, unmatched="nothing")
    assert (nothing.body, bool(nothing.said), nothing.is_prefix) == (b"", True, False)
    assert cut(PAGE, HTML, step, unmatched="all") == CutContent(PAGE, HTML)
    with pytest.raises(Unmatched, match="nothing matches"):
        cut(PAGE, HTML, step, unmatched="fail")


def test_the_largest_size() -> None:
    kept = cut(PAGE, HTML, {"css": "h1::text"}, max_bytes=3)
    assert (kept.body, kept.said) == ("Äpfel".encode()[:3], "css=h1::text; max_bytes=3")
    whole = cut(PAGE, HTML, max_bytes=9)
    assert (whole.body, whole.is_prefix) == (PAGE[:9], True)
    with pytest.raises(OverSize, match="13 bytes remain; max_bytes is 3"):
        cut(PAGE, HTML, {"css": "h1::text"}, max_bytes=3, over="fail")


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("<p>Müll".encode("cp1252"), "text/html; charset=utf-8", "M\ufffdll"),
        ("<p>Müll".encode("cp1252"), "text/html", "Müll"),
        ("<p>Müll".encode(), "text/html; charset=no-such-thing", "Müll"),
        ("<p>Müll".encode("utf-16"), "text/html", "Müll"),
        ("<p>\u6c34".encode("gbk"), "text/html; charset=gb2312", "\u6c34"),
        (b"<p>a<b>b<p>c</i>", "text/html", "a\nb\nc"),
        (b"<p>\x00a\x01", "text/html", "a\x01"),
        (b"<?xml version='1.0'?><r><p>x</p>", "application/xml", "x"),
        (b"<p>unclosed <!-- ", "", "unclosed "),
    ],
)
def test_broken_pages_and_wrong_charsets(body: bytes, kind: str, text: str) -> None:
    assert cut(body, kind, {"css": "p::text, b::text"}).body.decode() == text


ANY_STEP = st.sampled_from(
    [{"css": "p"}, {"xpath": "//p/@a"}, {"jsonpath": "$..a"}, {"regex": "a+"}, {"first": 3}]
)
KINDS = st.sampled_from(["", "text/html", "application/json", "text/xml", "image/png", "x;charset"])


@given(st.binary(max_size=200), ANY_STEP, KINDS)
def test_any_bytes_are_cut_or_do_not_match(body: bytes, step: dict[str, Any], kind: str) -> None:
    assert len(cut(body, kind, step).body) <= 10 * len(body) + 2


def test_deep_json_does_not_match_or_crash() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert cut(deep, "application/json", {"jsonpath": "$..x"}).body == b""


def test_overlapping_matches_are_stopped_while_they_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_rules, "WORK_LIMIT", 100_000)
    with pytest.raises(OverSize, match="exceeds"):
        cut(b"x" * 50_000, "text/plain", {"regex": "(?=(x+))"})
    with pytest.raises(OverSize, match="content rules apply up to"):
        cut(b"x" * 100_001, "text/plain", {"first": 3})


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"css": "p["}, "content step 0: 'css=p['"),
        ({"css": "p::nonsense(x)"}, "content step 0"),
        ({"xpath": "//p["}, "Invalid expression"),
        ({"xpath": "//p[upper(.) = 'X']"}, "there is no function upper()"),
        ({"jsonpath": "$[a"}, "content step 0: 'jsonpath="),
        ({"regex": "(a"}, "missing )"),
        ({}, "exactly one of css, xpath, jsonpath, regex, first"),
        ({"css": "a", "first": 3}, "exactly one of"),
    ],
    ids=str,
)
def test_rules_that_cannot_be_followed_are_refused(step: dict[str, Any], said: str) -> None:
    """D1: when the run is opened, with a sentence that names the step."""
    with pytest.raises(InvalidInput) as refused:
        check_content(ContentRules((ContentStep(**step),)))
    assert said in refused.value.detail
    assert "\n" not in refused.value.detail


def test_rules_are_for_downloaders_that_follow_them() -> None:
    check_content(ContentRules(max_bytes=3), "curl")
    with pytest.raises(InvalidInput, match="not for shell"):
        check_content(ContentRules(max_bytes=3), "shell")


def test_an_expression_is_not_evaluated_where_it_is_checked() -> None:
    """A center compiles it only: to run it would take without end."""
    endless = "//*[" * 40 + "1" + "]" * 40
    check_content(ContentRules((ContentStep(xpath=endless),)))
    with pytest.raises(BadRules, match="prefix"):
        cut(PAGE, HTML, {"xpath": "//a:b"})


def parcel(
    body: bytes = PAGE, stopped: Cut | None = None, *, is_plain: bool = False
) -> ContentPage:
    headers = [("Content-Type", "text/html"), ("Content-Length", str(len(body))), ("X-A", "b")]
    return ContentPage(
        "http://a.test/", "GET", [], b"", 200, "OK", headers, body, "192.0.2.1", stopped, 1e9,
        is_plain,
    )  # fmt: skip


def bench(*steps: ContentStep, unmatched: Literal["nothing", "fail"] = "nothing") -> ContentWorker:
    return ContentWorker(ContentSetup(ContentRules(steps, unmatched=unmatched, max_bytes=100), 1))


def test_the_record_says_that_it_was_cut() -> None:
    """D8: the rules, the length and the digest of the whole; readers see an honest record."""
    answer = bench(ContentStep(css="h1")).answer(parcel())
    record = read_records(answer.frames)[0]
    assert record.headers["WARC-Truncated"] == "unspecified"
    assert record.headers["Skep-Cut"] == "css=h1"
    assert record.headers["Skep-Original-Length"] == str(len(PAGE))
    assert record.headers["Skep-Original-Digest"].startswith("sha256:")
    plain = ZstdDecompressor().decompressobj().decompress(answer.frames)
    seen = next(iter(WarcioIterator(io.BytesIO(plain))))
    body = seen.content_stream().read()
    assert body.decode() == "<h1>Äpfel &amp; more</h1>"
    assert seen.rec_headers["WARC-Truncated"] == "unspecified"
    assert seen.http_headers["Content-Type"] == HTML
    assert seen.http_headers["X-Archive-Orig-Content-Type"] == "text/html"
    assert seen.http_headers["Content-Length"] == str(len(body))
    assert seen.http_headers["X-Archive-Orig-Content-Length"] == str(len(PAGE))
    frames = ArchiveIterator(io.BytesIO(answer.frames), record_types=WarcRecordType.response)
    (other,) = [(dict(r.headers), r.reader.read()) for r in frames]
    assert (other[0]["Skep-Cut"], other[1]) == ("css=h1", body)


def test_a_shorter_page_is_truncated_by_length() -> None:
    record = read_records(bench(ContentStep(first=9)).answer(parcel()).frames)[0]
    assert (record.headers["WARC-Truncated"], record.headers["Skep-Cut"]) == ("length", "first=9")
    early = read_records(bench(ContentStep(css="p")).answer(parcel(stopped=Cut.LENGTH)).frames)[0]
    assert early.headers["WARC-Truncated"] == "length"
    assert "Skep-Original-Length" not in early.headers


def test_a_page_that_fails_is_kept_as_it_came() -> None:
    answer = bench(ContentStep(css="nav"), unmatched="fail").answer(parcel())
    assert (answer.failure, answer.detail) == ("content", "nothing matches css=nav")
    plain = bench(ContentStep(css="nav"), unmatched="fail").answer(parcel(is_plain=True))
    assert plain.failure == ""
    for frames in (answer.frames, plain.frames):
        record = read_records(frames)[0]
        assert record.block.endswith(PAGE[:100])
        assert record.headers["Skep-Cut"] == "max_bytes=100"


def test_a_page_that_needs_too_much_memory_is_kept_as_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a child the limit is the kernel's; here the parser only says what it would say."""

    def fail(_self: Cutting, _body: bytes, _kind: str) -> CutContent:
        raise MemoryError

    monkeypatch.setattr(Cutting, "cut", fail)
    answer = bench(ContentStep(css="p")).answer(parcel())
    assert (answer.failure, answer.detail) == ("limit", "the content rules need too much memory")
    assert read_records(answer.frames)[0].block.endswith(PAGE[:100])


def test_rules_travel_with_the_settings_and_extracts_add_no_line() -> None:
    rules = ContentRules((ContentStep(css="a"), ContentStep(first=3)), unmatched="all")
    settings = RunSettings(content=rules)
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(settings), type=RunSettings) == settings
    assert "\r\n" not in Extract("a\r\nX: y", 1, "").lines().splitlines()[0]
    assert Exchange("http://a.test/").extract is None
