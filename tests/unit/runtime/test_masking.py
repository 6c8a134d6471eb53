"""The masker: what it hides, in every spelling, and what it leaves alone."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pytest

from skep.model.request import NewRequest
from skep.model.run_figures import RunFigures
from skep.runtime.ids import new_secret
from skep.runtime.masked_answers import masked
from skep.runtime.masking import mask_command, mask_headers, mask_options, mask_text

SECRET = "C4nary"

LEAKS = f"""
http://u:{SECRET}@h/x?a=1
HTTPS://U:{SECRET}@H
//u:{SECRET}@h/
socks5h://u:p@ss:{SECRET}@h:1/
http://h/?next=http%3A%2F%2Fu%3A{SECRET}%40h%2F
http://h/?next=http%253A%252F%252Fu%253A{SECRET}%2540h
http://h/?password={SECRET}&b=2
http://h/?b=2&PASSWORD={SECRET}
http://h/?p%61ssword={SECRET}
http://h/?P%2541SSWORD={SECRET}
http://h/?a=http%3A%2F%2Fh%2F%3Fpassword%3D{SECRET}%26b%3D2
http://h/?a=http://h/?api_key={SECRET}
http://h/#access_token={SECRET}
http://h/;jsessionid={SECRET}?x=1
Authorization: Basic {SECRET}
authorization: bearer {SECRET}
X-Auth-Token: {SECRET}
Api-Key: {SECRET}
Cookie: a={SECRET}; b={SECRET}
Referer: http://u:{SECRET}@h/
{{"api-key": "{SECRET}", "a": "b"}}
{{'headers': {{'X-Api-Key': '{SECRET}'}}}}
curl -H 'Api-Key: {SECRET}' http://h/
password={SECRET} and more words
got Bearer {SECRET} from there
postgresql://u:{SECRET}@db/x?sslmode=require
http://u:a&{SECRET}@h/
http://u:it's{SECRET}@h/
http://u:a"<\\{SECRET}@h/
http:\\/\\/u:{SECRET}@h\\/
http:/u:{SECRET}@h/
u:{SECRET}@h:3128
http://h/?password=a'{SECRET}
http://h/?password=a"{SECRET}
http://h/?q=%3Bpassword%3d{SECRET}
http://h/?subscription-key={SECRET}
http://h/?app_key={SECRET}
password="two words {SECRET}"
Password = two words {SECRET}
password => {SECRET}
password%3A%20{SECRET}
Authorization: Digest username="u", response="{SECRET}"
password: it's {SECRET}
Cookie: a=b; c="{SECRET}"
{{\\"password\\": \\"{SECRET}\\"}}
{{"password": "a\\"{SECRET}", "b": 1}}
{{'password': ['{SECRET}']}}
auth=("u", "{SECRET}")
<password>{SECRET}</password>
app --password {SECRET} --port 80
curl -u u:{SECRET} http://h/
could not connect to http://u:{SECRET}
could not connect to http://u:{SECRET}... (cut)
http%3A%2F%2Fu%3A{SECRET}
"""


@pytest.mark.parametrize("text", [line for line in LEAKS.splitlines() if line])
def test_no_spelling_of_a_credential_gets_through(text: str) -> None:
    """S4: nested, percent-encoded, in another case, in a URL inside a header."""
    assert SECRET not in mask_text(text)
    assert SECRET not in str(masked({"a": [{"b": (text,)}]}))


HARMLESS = """
https://medium.com/@user/x
http://h:80/a:b?page=2&q=x
run spider: 3 pages, 2 passed: yes
12:34:56 center c1 is open on sqlite:////data/skep.db
mailto: a@b.c
author: zoe
image: python:3.11
could not connect to http://h:8080
http://h:8080 is away, and http://[::1]:80 too
//note: this is code
{"a": "http://h/x", "b": [1, 2]}
error: could not connect: port=80
"""


@pytest.mark.parametrize("text", [line for line in HARMLESS.splitlines() if line])
def test_other_text_stays(text: str) -> None:
    """S4: a log line or an address without a credential is shown as it is."""
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "%3Fa%3D",
        "a: ",
        "//",
        "//a",
        " a",
        "&a=",
        "=@:",
        "%25",
        "&key=",
        "%3Fkey%3D",
        "?a",
        "'",
        "//a:",
        ":a",
    ],
)
def test_time_grows_with_the_text_only(text: str) -> None:
    """S4: a text that a caller chose costs little, whatever it is made of."""
    began = perf_counter()
    mask_text(f"//{text * (100_000 // len(text))}@")
    assert perf_counter() - began < 5


def test_headers_are_hidden_unless_they_are_known() -> None:
    """S4: deny by default."""
    headers = {"X-Whatever": SECRET, "accept": "text/html", "Referer": f"http://u:{SECRET}@h/"}
    assert mask_headers(headers) == {
        "X-Whatever": "***",
        "accept": "text/html",
        "Referer": "http://***@h/",
    }


def test_options_of_curl() -> None:
    """S4: glued, with `=`, as header; names of options stay."""
    words = ["-u", SECRET, f"-u{SECRET}", f"--user={SECRET}", "-H", f"X-A: {SECRET}", "-b", SECRET]
    words += ["--oauth2-bearer", SECRET, "--proxy-user", SECRET, "-d", SECRET, "-A", "me", "-L"]
    shown = mask_options(words)
    assert SECRET not in str(shown)
    assert shown[-3:] == ["-A", "me", "-L"]
    assert shown[:4] == ["-u", "***", "-u***", "--user=***"]


@pytest.mark.parametrize("word", [f"--{SECRET}", f"-{SECRET}"])
@pytest.mark.parametrize("option", ["-u", "--oauth2-bearer", "-b", "--cookie", "-H"])
def test_a_credential_that_looks_like_an_option_of_curl(option: str, word: str) -> None:
    """S4: what follows `-u` is its value, whatever it begins with."""
    assert SECRET not in str(mask_options([option, word]))


NESTED: list[Any] = [
    {"password": [SECRET]},
    {"password": (SECRET, [SECRET])},
    {"passwords": {"a": SECRET}},
    {"auth": ["u", SECRET]},
    {"PassWord": SECRET.encode()},
    {"p%61ssword": [SECRET]},
    {"deep": [{"Cookies": [{"n": SECRET}]}]},
    {"Headers": {"X-Any": SECRET}},
    {"HEADERS": [["X-Any", SECRET]]},
    {f"http://u:{SECRET}@h/": 1},
    [["Authorization", SECRET]],
    [{"name": "Authorization", "value": [SECRET]}],
]


@pytest.mark.parametrize("value", NESTED, ids=repr)
def test_what_a_secret_name_holds_is_hidden_however_deep(value: Any) -> None:
    """S4: lists, mappings, bytes and keys."""
    assert SECRET not in str(masked(value))
    assert SECRET not in str(masked({"meta": value}))


def test_numbers_are_secrets_where_callers_choose_the_names() -> None:
    """S4: a PIN in `meta`, but not the count of a job that is called `session`."""
    assert masked(NewRequest("http://h/", meta={"pin": 4711})).meta == {"pin": "***"}
    figures = RunFigures(agents={"session-1": 7})
    assert masked(figures).agents == {"session-1": 7}


def test_options_of_a_program() -> None:
    """S4: short options may be anything; their values are hidden."""
    for command in (["curl", "-u", f"u:{SECRET}"], ["mysql", f"-p{SECRET}"], ["sh", "-c", SECRET]):
        assert SECRET not in str(mask_command(command))
    assert mask_command(["python", "-m", "app", "x.csv"]) == ["python", "-m", "app", "x.csv"]


def test_a_command_line_of_a_program() -> None:
    command = ["app", "--token", SECRET, f"--password={SECRET}", "--port", "80"]
    assert mask_command(command) == ["app", "--token", "***", "--password=***", "--port", "80"]


def test_a_request_as_it_was_sent() -> None:
    request = NewRequest(
        "http://h/", "POST", {"X-A": SECRET}, SECRET.encode(), meta={"pwd": SECRET}
    )
    shown = masked(request)
    assert SECRET not in repr(shown)
    assert request.headers == {"X-A": SECRET}, "the original is left alone"


@pytest.mark.parametrize(
    "name", ["headers", "cookie", "proxy", "proxies", "curl", "arguments", "environment", "body"]
)
@pytest.mark.parametrize("value", [7, 1.5, True, None, {"a": [1]}, [1, None], f"-u me:{SECRET}"])
def test_a_key_of_a_caller_may_have_the_name_of_a_field(name: str, value: Any) -> None:
    """Whatever it holds: an answer is masked, and not an error."""
    shown = masked({name: value})[name]
    assert SECRET not in str(shown)
    letters = "".join(map(str, shown)) if isinstance(shown, list) else ""
    assert SECRET not in letters, "shown letter by letter"


@pytest.mark.parametrize("kind", ["admin", "viewer", "agent", "join", "session", "link"])
def test_credentials_of_the_program_are_masked_without_a_name(kind: str) -> None:
    """R4: a token that code prints is in log lines, which viewers read."""
    secret = new_secret(f"skep_{kind}")
    for text in (secret, f"using {secret} now", f'["{secret}"]', f"/login#{secret}"):
        masked = mask_text(text)
        assert secret.removeprefix(f"skep_{kind}_") not in masked
        assert f"skep_{kind}_***" in masked
    assert mask_text("skep_admin_token is a file") == "skep_admin_token is a file"


@pytest.mark.parametrize("mark", [":", ",", ";", ")", ""])
def test_the_port_of_an_address_is_not_a_password(mark: str) -> None:
    """R4: the log of an agent says which center does not answer."""
    text = f"no center answers at http://10.0.0.1:8420{mark} Connection refused"
    assert mask_text(text) == text
    assert mask_text(f"at http://anna:geheim{mark} refused") == "at http://*** refused"
