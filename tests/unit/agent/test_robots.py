"""robots.txt: how an answer is read, what is kept, and by which name we are known."""

from __future__ import annotations

from random import Random

import pytest

from skep.agent.hosts.robots import (
    OURS,
    READ_BYTES,
    Robots,
    Rules,
    Silence,
    Text,
    judge,
    place_of,
    product_token,
    read,
)
from skep.archive.frames import Exchange, FrameMaker
from skep.downloaders.ports import Fetched
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome
from skep.testing.clock import ManualClock

SIMPLE = b"User-agent: *\nDisallow: /private\nAllow: /private/open\nCrawl-delay: 2.5\n"


def fetched(
    body: bytes = b"", status: int = 200, failure: str = "", retry_after: float | None = None
) -> Fetched:
    exchange = Exchange(
        "http://h/robots.txt", "GET", (), b"", status, "R", (("Content-Type", "text/plain"),), body
    )
    frames = FrameMaker(ManualClock(), Random(1)).exchange_frames(exchange) if status else b""
    return Fetched(Outcome(-1, failure, status, retry_after=retry_after), frames)


def rules(body: bytes) -> Rules:
    said = judge(fetched(body))
    assert isinstance(said, Text)
    return read(said)


def test_rules_are_read_out_of_the_frames() -> None:
    found = rules(SIMPLE)
    assert found.allow("http://h/page", OURS)
    assert not found.allow("http://h/private/page", OURS)
    assert found.allow("http://h/private/open/page", OURS)
    assert found.crawl_delay(OURS) == 2.5


def test_the_group_with_our_name_wins() -> None:
    found = rules(b"User-agent: skep\nDisallow: /a\n\nUser-agent: *\nDisallow: /\n")
    assert found.allow("http://h/b", "Skep")
    assert not found.allow("http://h/a", "Skep")
    assert not found.allow("http://h/b", "Other")


def test_a_request_rate_is_a_crawl_delay_too() -> None:
    found = rules(b"User-agent: *\nRequest-rate: 1/10\nCrawl-delay: 3\n")
    assert found.crawl_delay(OURS) == 10.0


def test_a_byte_order_mark_and_bytes_that_are_no_text_do_no_harm() -> None:
    assert not rules(b"\xef\xbb\xbfUser-agent: *\r\nDisallow: /x\r\n").allow("http://h/x", OURS)
    assert not rules(b"\xff\xfe\x00junk\nUser-agent: *\nDisallow: /x").allow("http://h/x", OURS)
    assert rules(b"\x00" * 1000).allow("http://h/x", OURS)
    assert rules(b"").allow("http://h/x", OURS)
    assert rules(b"").crawl_delay(OURS) == 0.0


def test_of_a_huge_file_the_beginning_counts_and_no_line_is_cut_in_two() -> None:
    head = b"User-agent: *\nDisallow: /private\n"
    filler = b"# nothing to see here\n" * (2 * READ_BYTES // 22)
    assert not rules(head + filler).allow("http://h/private", OURS)
    assert rules(filler + head).allow("http://h/private", OURS)
    # `Disallow: /` would be the beginning of `Disallow: /private`.
    start = head + b"#" * (READ_BYTES - len(head) - 13) + b"\nDisallow: /private2\n"
    assert rules(start + filler).allow("http://h/page", OURS)


def test_an_answer_that_was_cut_still_counts() -> None:
    """A run may take only small bodies; the rules that came are obeyed."""
    said = judge(fetched(SIMPLE, failure=FailureClass.LIMIT))
    assert isinstance(said, Text)
    assert not read(said).allow("http://h/private", OURS)


@pytest.mark.parametrize("status", [301, 302, 400, 401, 403, 404, 410])
def test_a_host_without_robots_txt_allows_everything(status: int) -> None:
    """Redirects are followed by the downloader; one that arrives here leads nowhere."""
    failure = FailureClass.STATUS if status >= 400 else ""
    assert judge(fetched(b"Disallow: /", status, failure)) == Text(b"")


def test_an_address_that_our_own_policy_refuses_is_left_to_that_policy() -> None:
    assert judge(fetched(status=0, failure=FailureClass.BLOCKED)) == Text(b"")


@pytest.mark.parametrize(
    ("answer", "trouble", "failure"),
    [
        (fetched(status=500, failure=FailureClass.STATUS), "robots", FailureClass.STATUS),
        (fetched(status=0, failure=FailureClass.NETWORK), "robots", FailureClass.NETWORK),
        (fetched(status=0, failure=FailureClass.TIMEOUT), "robots", FailureClass.TIMEOUT),
        (fetched(status=0, failure=FailureClass.CONTENT), "robots", FailureClass.CONTENT),
        (fetched(status=0, failure=FailureClass.LOST), "robots", FailureClass.LOST),
        (fetched(status=503, failure=FailureClass.STATUS), "503", FailureClass.STATUS),
        (fetched(status=429, failure=FailureClass.STATUS), "429", FailureClass.STATUS),
    ],
)
def test_a_host_that_fails_allows_nothing_for_now(
    answer: Fetched, trouble: str, failure: str
) -> None:
    said = judge(answer)
    assert isinstance(said, Silence)
    assert (said.trouble, said.failure) == (trouble, failure)


def test_retry_after_of_a_robots_txt_is_heeded() -> None:
    said = judge(fetched(status=503, failure=FailureClass.STATUS, retry_after=77.0))
    assert isinstance(said, Silence)
    assert said.cool == 77.0


def test_frames_that_are_damaged_allow_nothing() -> None:
    broken = fetched(SIMPLE)
    broken.frames = broken.frames[:20]
    assert isinstance(judge(broken), Silence)


def test_rules_are_kept_for_an_hour_and_the_oldest_go_first() -> None:
    robots = Robots(kept=2)
    for number, origin in enumerate(("http://a:80", "http://b:80")):
        robots.keep(origin, Rules(), number)
    assert robots.rules_of("http://a:80", 3599.0) is not None
    robots.keep("http://c:80", Rules(), 2)
    assert robots.rules_of("http://b:80", 3.0) is None
    assert robots.rules_of("http://a:80", 3600.0) is None
    assert len(robots) == 2


def test_one_robots_txt_speaks_for_one_origin() -> None:
    assert place_of("http://Example.org/a#b") == ("http://example.org:80", "http://example.org/a")
    assert place_of("http://example.org:8080/a") != place_of("http://example.org/a")
    assert place_of("https://u:p@[2001:db8::1]/") == (
        "https://[2001:db8::1]:443",
        "https://[2001:db8::1]/",
    )
    assert place_of("toy://x/1") is None


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({}, OURS),
        ({"User-Agent": "FindBot/2.1 (+https://find.example)"}, "FindBot"),
        ({"user-agent": " my_bot"}, "my_bot"),
        ({"User-Agent": "123"}, OURS),
        ({"Accept": "*/*"}, OURS),
    ],
)
def test_the_first_word_of_the_user_agent_is_our_name(headers: dict[str, str], token: str) -> None:
    assert product_token(headers) == token
