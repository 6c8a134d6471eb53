"""One parser decides what the host of a URL is: compared with the three that it replaced.

`url_spellings.json` holds 582 spellings of hosts, with what each earlier parser said: that of
centers (`host:port`, null = refused), that of agents, and the places that a person named
("" = none). The spellings of this machine are among them, and what is odd in other ways: user
names, zones, letters that become others, escapes, tabs, backslashes, short and octal addresses.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.downloaders.target_url import BadTarget, join_target, parse_target
from skep.errors import SkepError
from skep.jobs.request_validation import Validator
from skep.model.hosts.named_places import place_in
from skep.model.hosts.url import BadUrl, Url, read_url
from skep.testing.grounds.address_spellings import LOOPBACK_SPELLINGS


class Answers(NamedTuple):
    """Of a center, of an agent, and the place that is named."""

    center: str | None
    agent: str | None
    named: str


ROWS: list[tuple[str, str | None, str | None, str]] = json.loads(
    Path(__file__).with_name("url_spellings.json").read_text()
)
BEFORE = {text: Answers(center, agent, named) for text, center, agent, named in ROWS}
_VALIDATOR = Validator(("http", "https"), Random(1))
#: Every difference is a decision, and each is the stricter answer: a refusal.
DECISIONS = {
    # Browsers read `\` as `/`, so the host would be what stands before it.
    "a backslash before the path": r"^\w+://[^/?#]*\\",
    # Python leaves tabs and line breaks out, libcurl does not.
    "a control character before the path": r"^[^/]*[\x00-\x1f\x7f]|^\w+:/?[\t]|^\w+://[^/?#]*[\x00-\x1f\x7f]",
    # Python ignored what stands between the bracket and the port.
    "text after a bracket": r"\][^:/?#]",
    # A form of address that no resolver knows; it was asked for as a name.
    "an address of a future version": r"://[^/]*\[v",
    "an IPv4 address in brackets": r"://[^/]*\[\d+\.",
    # The agent's quick way took five digits without looking at the number.
    "a port that does not exist": r":0+/|:65536/|:\d{6,}/",
    "a name above 253 characters": r"a{254}",
    # Places were named with characters that no host has, and then never matched.
    "a character that no host has": r"://[^/?#]*[%,'\"<;&=+!*~|{^`($]",
    # Such a host is spelled in two ways. A center names it by the URI that it keeps.
    "letters beyond ASCII, as a named place": r"[^\x00-\x7f]",
}
#: The one place that is named now and was not before: a center keeps it as `http://127.0.0.1/`
#: and has always named that.
AN_EMPTY_PORT = "http://127.0.0.1:/"


def center(text: str) -> str | None:
    """Where a request leads that a center accepts."""
    try:
        (row,) = _VALIDATOR.rows([text], 5, 0.0)
    except SkepError:
        return None
    return parse_target(row.uri).place


def agent(text: str) -> str | None:
    try:
        return parse_target(text).place
    except BadTarget:
        return None


def test_no_spelling_leads_to_another_host_than_before() -> None:
    """H1, fault 54: the answers of centers are the same; others are the same, or refusals."""
    for text, before in BEFORE.items():
        assert center(text) == before.center, ascii(text)
        assert agent(text) in {before.agent, None}, ascii(text)
        if text != AN_EMPTY_PORT:
            assert place_in(text) in {before.named, ""}, ascii(text)


def test_what_is_refused_now_has_its_reason() -> None:
    """Each decision is met by a spelling, and each difference by a decision."""
    changed = [
        text
        for text, before in BEFORE.items()
        if (agent(text), place_in(text)) != (before.agent, before.named) and text != AN_EMPTY_PORT
    ]
    met = {
        text: [why for why, form in DECISIONS.items() if re.search(form, text)] for text in changed
    }
    assert [ascii(text) for text, reasons in met.items() if not reasons] == []
    assert {why for reasons in met.values() for why in reasons} == set(DECISIONS)
    assert len(changed) == 189


def test_center_and_agent_agree_on_every_spelling() -> None:
    """What a center accepts, an agent reads as the same host, as written and as kept."""
    for text in BEFORE:
        if (accepted := center(text)) is not None:
            assert agent(text) == accepted, ascii(text)


@pytest.mark.parametrize("host", LOOPBACK_SPELLINGS)
def test_the_spellings_of_this_machine_are_in_the_table(host: str) -> None:
    assert f"http://{host}/" in BEFORE


@pytest.mark.parametrize(
    "location",
    ["http://127.0.\t0.1/", "http:/\t/127.0.0.1/", "\x01//127.0.0.1/", "//a\tb/", "/a\x00b"],
)
def test_a_redirect_with_control_characters_is_refused(location: str) -> None:
    """Joining leaves tabs out: the host would be another than the server wrote."""
    with pytest.raises(BadTarget, match="control character"):
        join_target("http://a.test/", location)


@pytest.mark.parametrize("location", ["http://a\\@127.0.0.1/", "http://[::1]x/", "//a.test:0/"])
def test_a_redirect_to_a_host_of_two_readings_is_refused(location: str) -> None:
    with pytest.raises(BadTarget):
        join_target("http://a.test/", location)


def test_the_parts_of_a_url() -> None:
    assert read_url("http://a.test/x?y") == Url("http", "a.test", 0, "", "/x?y", plain=True)
    careful = read_url("HTTPS://u@v:w@[2001:DB8::1]:0443?q#f")
    assert careful == Url("https", "[2001:db8::1]", 443, "u@v:w", "?q")


@given(st.text(alphabet=st.characters(), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """The host is plain ASCII, and the same when it is read again."""
    for uri in (text, f"http://{text}", f"http://{text}@a.test/", f"http://a.test{text}"):
        try:
            url = read_url(uri)
        except BadUrl:
            continue
        assert re.fullmatch(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]", url.host)
        again = read_url(f"{url.scheme}://{url.host}:{url.port or 80}/")
        assert (again.host, again.port) == (url.host, url.port or 80)
