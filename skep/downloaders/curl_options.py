"""Parses the safe command-line options of curl. Pure; used by centers and agents.

Options come as a list of words and are never passed to a shell or to a curl program: each becomes
a setting of our own downloader. Options that read or write files or select other protocols,
proxies, sockets or certificates are refused by name.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote_plus

_FORM = "application/x-www-form-urlencoded"
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
_SIZE = re.compile(r"([0-9]{1,12})([kKmMgG]?)")
_METHOD = re.compile(r"[A-Z]{1,20}")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


class BadOption(Exception):
    """An option that is not supported; the text says why."""


@dataclass(slots=True)
class CurlPlan:
    """The settings of the options."""

    headers: dict[str, str] = field(default_factory=dict)
    method: str = ""
    data: list[str] = field(default_factory=list)
    data_type: str = _FORM
    #: None = do not follow; -1 = follow up to the limit of the run.
    redirects: int | None = None
    most_redirects: int | None = None
    time_limit: float | None = None
    body_limit: int | None = None

    @property
    def body(self) -> bytes:
        return "&".join(self.data).encode()

    @property
    def verb(self) -> str:
        """The method that curl would use."""
        return self.method or ("POST" if self.data else "GET")


#: Why a well-known option is refused.
_REFUSED = {
    "it would write a file": (
        "-o --output -O --remote-name --remote-name-all --output-dir -J -D --dump-header -c "
        "--cookie-jar --trace --trace-ascii --stderr --hsts --alt-svc --libcurl --etag-save"
    ),
    "it would read a file": (
        "-K --config -T --upload-file -F --form --form-string -E --cert --key --cacert --capath "
        "-n --netrc --netrc-file --netrc-optional --etag-compare --crlfile"
    ),
    "the agent decides where to connect": (
        "-x --proxy --preproxy --socks4 --socks4a --socks5 --socks5-hostname -U --proxy-user "
        "--resolve --connect-to --interface --unix-socket --abstract-unix-socket --doh-url "
        "--dns-servers --dns-interface --local-port --haproxy-protocol -p --proxytunnel"
    ),
    "certificates are always checked": "-k --insecure --proxy-insecure --ssl-allow-beast",
    "only http and https are supported": "--proto --proto-redir --proto-default -a --append -Q",
    "each request has one URL": "-: --next -Z --parallel --url -w --write-out",
}
_WHY = {name: why for why, names in _REFUSED.items() for name in names.split()}
#: Accepted without effect: the downloader always works this way.
_NOTHING = frozenset(
    {
        "-s", "--silent", "-S", "--show-error", "--compressed", "-g", "--globoff", "-N", "--http2",
        "--no-buffer", "--no-progress-meter", "--path-as-is", "-#", "--progress-bar",
    }
)  # fmt: skip


def parse(words: Iterable[str]) -> CurlPlan:
    """Raises BadOption for the first option that is not supported."""
    plan = CurlPlan()
    source = iter(words)
    for word in source:
        for name, value in _split(word):
            _apply(plan, name, value, source)
    return plan


def safe_names() -> list[str]:
    """Every supported option, for docs and errors."""
    return sorted({*_WITH_VALUE, *_FLAGS, *_NOTHING}, key=lambda name: name.lstrip("-").lower())


def _split(word: str) -> Iterator[tuple[str, str | None]]:
    """curl does not support `--name=value`; it supports `-Hvalue` and `-sS`."""
    if word.startswith("--") or len(word) <= 2:  # noqa: PLR2004 - a dash and a letter
        yield word, None
        return
    if not word.startswith("-"):
        raise BadOption(f"{word[:50]!r} is not an option; URLs belong to requests")
    rest = word[1:]
    while rest:
        name, rest = f"-{rest[0]}", rest[1:]
        if name in _WITH_VALUE:
            yield name, rest or None
            return
        yield name, None


def _apply(plan: CurlPlan, name: str, value: str | None, source: Iterator[str]) -> None:
    if name in _NOTHING:
        return
    if (flag := _FLAGS.get(name)) is not None:
        flag(plan)
        return
    setter = _WITH_VALUE.get(name)
    if setter is None:
        raise BadOption(_refusal(name))
    if value is None:
        value = next(source, None)
    if value is None:
        raise BadOption(f"curl option {name} needs a value")
    setter(plan, value)


def _refusal(name: str) -> str:
    if not name.startswith("-"):
        return f"{name[:50]!r} is not an option; URLs belong to requests"
    why = _WHY.get(name, "it is not on the safe list")
    return f"curl option {name[:50]} is refused: {why}; use one of {', '.join(safe_names())}"


def _header(plan: CurlPlan, text: str) -> None:
    name, colon, value = text.partition(":")
    if not colon or name.startswith("@"):
        raise BadOption(f"header {text[:50]!r} must be `Name: value`")
    plan.headers[name.strip()] = value.strip()


def _cookie(plan: CurlPlan, text: str) -> None:
    if "=" not in text:
        raise BadOption("--cookie FILE is refused: it would read a file; use `name=value`")
    plan.headers["Cookie"] = text


def _user(plan: CurlPlan, text: str) -> None:
    token = base64.b64encode(text.encode()).decode()
    plan.headers["Authorization"] = f"Basic {token}"


def _bearer(plan: CurlPlan, text: str) -> None:
    plan.headers["Authorization"] = f"Bearer {text}"


def _request(plan: CurlPlan, text: str) -> None:
    if _METHOD.fullmatch(text) is None:
        raise BadOption(f"--request {text[:30]!r} is not a method; use capital letters")
    plan.method = text


def _data(plan: CurlPlan, text: str) -> None:
    if text.startswith("@"):
        raise BadOption("--data @FILE is refused: it would read a file")
    plan.data.append(text)


def _data_raw(plan: CurlPlan, text: str) -> None:
    plan.data.append(text)


def _data_urlencode(plan: CurlPlan, text: str) -> None:
    name, equals, value = text.partition("=")
    if "@" in name:
        raise BadOption("--data-urlencode name@FILE is refused: it would read a file")
    content = quote_plus(value if equals else text)
    plan.data.append(f"{name}={content}" if equals and name else content)


def _json(plan: CurlPlan, text: str) -> None:
    _data(plan, text)
    plan.data_type = "application/json"
    plan.headers.setdefault("Accept", "application/json")


def _max_redirs(plan: CurlPlan, text: str) -> None:
    if not (text.isascii() and text.isdigit()):
        raise BadOption(f"--max-redirs {text[:30]!r} is not a number")
    plan.most_redirects = int(text[:4])


def _max_time(plan: CurlPlan, text: str) -> None:
    if _SECONDS.fullmatch(text) is None or not float(text):
        raise BadOption(f"--max-time {text[:30]!r} is not a number of seconds")
    plan.time_limit = float(text)


def _max_filesize(plan: CurlPlan, text: str) -> None:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise BadOption(f"--max-filesize {text[:30]!r} is not a size")
    plan.body_limit = int(found[1]) * _UNITS[found[2].lower()]


def _named_header(name: str) -> Callable[[CurlPlan, str], None]:
    def put(plan: CurlPlan, text: str) -> None:
        plan.headers[name] = text

    return put


def _head(plan: CurlPlan) -> None:
    plan.method = "HEAD"


def _location(plan: CurlPlan) -> None:
    plan.redirects = -1


_FLAGS: dict[str, Callable[[CurlPlan], None]] = {
    "-I": _head, "--head": _head, "-L": _location, "--location": _location,
}  # fmt: skip
_WITH_VALUE: dict[str, Callable[[CurlPlan, str], None]] = {
    "-H": _header, "--header": _header,
    "-A": _named_header("User-Agent"), "--user-agent": _named_header("User-Agent"),
    "-e": _named_header("Referer"), "--referer": _named_header("Referer"),
    "-b": _cookie, "--cookie": _cookie,
    "-u": _user, "--user": _user, "--oauth2-bearer": _bearer,
    "-X": _request, "--request": _request,
    "-d": _data, "--data": _data, "--data-ascii": _data, "--data-binary": _data,
    "--data-raw": _data_raw, "--data-urlencode": _data_urlencode, "--json": _json,
    "--max-redirs": _max_redirs,
    "-m": _max_time, "--max-time": _max_time, "--max-filesize": _max_filesize,
}  # fmt: skip
