"""Options of the `curl` downloader (D6): safe ones become settings, others are refused."""

from __future__ import annotations

import pytest

from skep.downloaders.curl import planned
from skep.downloaders.curl_options import BadOption, parse, safe_names
from skep.errors import InvalidInput
from skep.jobs.definitions.code_check import check_code
from skep.model.run import RunSettings


def test_safe_options_become_settings() -> None:
    options = ["-sSL", "-A", "me/1", "-HX-One: 1", "--header", "X-Two:2", "-b", "a=b", "-m", "7.5"]
    options += ["--max-redirs", "3", "--max-filesize", "2k", "-e", "http://from.example/"]
    settings = planned(RunSettings(headers={"X-Two": "run"}), parse(options))
    assert settings.headers == {
        "X-Two": "2", "User-Agent": "me/1", "X-One": "1", "Cookie": "a=b",
        "Referer": "http://from.example/",
    }  # fmt: skip
    assert (settings.redirects, settings.time_limit, settings.body_limit) == (3, 7.5, 2048)


def test_like_curl_it_follows_no_redirect_unless_asked() -> None:
    assert planned(RunSettings(redirects=10), parse(())).redirects == 0
    assert planned(RunSettings(redirects=10), parse(("-L",))).redirects == 10


def test_options_never_widen_the_limits_of_the_run() -> None:
    plan = parse(("-L", "--max-redirs", "50", "-m", "9999", "--max-filesize", "9g"))
    settings = planned(RunSettings(redirects=2, time_limit=5.0, body_limit=100), plan)
    assert (settings.redirects, settings.time_limit, settings.body_limit) == (2, 5.0, 100)


def test_data_makes_a_form_and_json_says_so() -> None:
    plan = parse(("-d", "a=1", "--data-urlencode", "b=x & y", "--data-raw", "@c"))
    assert (plan.verb, plan.body) == ("POST", b"a=1&b=x+%26+y&@c")
    assert planned(RunSettings(), plan).headers["Content-Type"].endswith("form-urlencoded")
    sent = planned(RunSettings(), parse(("--json", "{}")))
    assert sent.headers == {"Accept": "application/json", "Content-Type": "application/json"}
    assert parse(("-X", "PUT", "-d", "x")).verb == "PUT"
    assert parse(("-I",)).verb == "HEAD"
    assert parse(("-u", "u:p")).headers == {"Authorization": "Basic dTpw"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("-o", "x"), "-o is refused: it would write a file"),
        (("-sSo", "x"), "-o is refused: it would write a file"),
        (("--output", "x"), "it would write a file"),
        (("-K", "x"), "it would read a file"),
        (("-T", "x"), "it would read a file"),
        (("-F", "a=@x"), "it would read a file"),
        (("-d", "@x"), "it would read a file"),
        (("--data-urlencode", "a@x"), "it would read a file"),
        (("-b", "jar.txt"), "it would read a file"),
        (("-H", "@x"), "must be `Name: value`"),
        (("-x", "http://p"), "the agent decides where to connect"),
        (("--unix-socket", "/run/x"), "the agent decides where to connect"),
        (("--resolve", "a:80:1.2.3.4"), "the agent decides where to connect"),
        (("-k",), "certificates are always checked"),
        (("--proto", "=file"), "only http and https are supported"),
        (("--no-such",), "it is not on the safe list"),
        (("--header=X: 1",), "it is not on the safe list"),
        (("http://a.example/",), "is not an option; URLs belong to requests"),
        (("file:///etc/passwd",), "is not an option; URLs belong to requests"),
        (("-m",), "-m needs a value"),
        (("-m", "-1"), "is not a number of seconds"),
        (("-X", "GET / HTTP/1.1"), "is not a method; use capital letters"),
    ],
)
def test_unsafe_options_are_refused_by_name(options: tuple[str, ...], why: str) -> None:
    with pytest.raises(BadOption, match=r".") as caught:
        parse(options)
    assert why in str(caught.value)
    with pytest.raises(InvalidInput):
        check_code(RunSettings(downloader="curl", curl=options))


def test_a_refusal_names_what_is_safe() -> None:
    with pytest.raises(BadOption) as caught:
        parse(("--output", "x"))
    assert all(name in str(caught.value) for name in safe_names())
