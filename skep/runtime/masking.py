"""The one masker: credentials in text, headers, options and URLs become `***`. Pure.

Every process uses it: centers for answers to callers who may only look, all of them for log
lines. It denies by default: names of headers, options and arguments are shown, values only
where the name is known to be harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

MASK = "***"

#: Headers whose values are shown.
HARMLESS_HEADERS = frozenset(
    """
    accept accept-charset accept-encoding accept-language age allow cache-control connection
    content-encoding content-language content-length content-range content-type date dnt etag
    expect expires host if-match if-modified-since if-none-match if-range if-unmodified-since
    last-modified origin pragma priority range referer referrer-policy retry-after save-data
    sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform sec-fetch-dest sec-fetch-mode sec-fetch-site
    sec-fetch-user te trailer transfer-encoding upgrade upgrade-insecure-requests user-agent vary
    via x-requested-with
    """.split()  # noqa: SIM905 - a list of words
)
#: Options of curl whose values are shown, and those whose value is a header.
_HARMLESS_OPTIONS = frozenset(
    """
    -A --user-agent -e --referer -X --request -m --max-time --connect-timeout --max-redirs
    --max-filesize --retry --retry-delay --retry-max-time --limit-rate -r --range -y --speed-time
    -Y --speed-limit
    """.split()  # noqa: SIM905 - a list of words
)
_HEADER_OPTIONS = frozenset({"-H", "--header", "--proxy-header"})
_SHORT = 2

#: Words that make a name secret wherever they stand in it, and whole names.
_SECRET_WORD = re.compile(
    r"pass(?!ed|es\b|ing|ive|age|enger|port)|pwd|secret|token|api.?key|access.?key|private.?key|auth(?!or\b)"
    r"|credential|signature|session|jwt|bearer|cookie|csrf|xsrf",
    re.IGNORECASE,
)
_SECRET_NAMES = frozenset({"key", "sig", "sid", "pw", "pin", "otp", "apikey", "hmac"})

_SLASHES = r"(?:/|%(?:25)*2f)"
_AT = r"(?:@|%(?:25)*40)"
#: `//user:password@`, plain or percent-encoded, up to the last `@` before the path.
_LOGIN = re.compile(
    rf"({_SLASHES}{{2}})(?:(?!{_SLASHES}|%(?:25)*(?:3f|23))[^\s/?#\\\"'<>&])*{_AT}", re.IGNORECASE
)
#: `name=` behind a `?`, `&`, `;`, `#` or at the beginning of a word, and how far its value goes.
_PAIR = re.compile(
    r"(?:^|[\s?&;#,\"'(\[{]|%(?:25)*(?:3f|26|23))(?:--)?(?P<name>[^\s=&?#;,:/\"'(\[{]{1,200}?)"
    r"[\"']?\s?(?:=|%(?:25)*3d)\s?[\"']?",
    re.IGNORECASE,
)
_PAIR_VALUE = re.compile(r"(?:(?!%(?:25)*(?:26|23))[^\s&#\"'<>])*", re.IGNORECASE)
#: `Name:`, as headers and JSON have it; its value goes to the end of the line or the string.
_LINE = re.compile(r"(?<![\w-])(?P<name>[\w-]{2,64})[\"']?\s?:\s?[\"']?")
_LINE_VALUE = re.compile(r"[^\r\n\"'\\]*")
_SCHEMES = re.compile(r"\b(bearer|basic|digest|negotiate)(\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
_HINTS = re.compile(r"[@=:]|%(?:25)*(?:40|3d)|(?:bearer|basic|digest|negotiate)\s", re.IGNORECASE)
#: Percent-encodings that are taken off a name: of a URL in a URL in a URL.
_LAYERS = 3


def is_secret_name(name: str) -> bool:
    """Whether a parameter, header or field of this name holds a credential."""
    for _ in range(_LAYERS):
        decoded = unquote(name)
        if decoded == name:
            break
        name = decoded
    return name.lower() in _SECRET_NAMES or _SECRET_WORD.search(name) is not None


def mask_text(text: str) -> str:
    """Any text: logins in URLs, password-like parameters, headers that let a caller in."""
    if _HINTS.search(text) is None:
        return text
    text = _LOGIN.sub(rf"\1{MASK}@", text)
    text = _mask_values(text, _PAIR, _PAIR_VALUE)
    text = _mask_values(text, _LINE, _LINE_VALUE)
    return _SCHEMES.sub(rf"\1\2{MASK}", text)


def _mask_values(text: str, names: re.Pattern[str], values: re.Pattern[str]) -> str:
    """Behind each secret name. A loop: a URL may hold a URL that holds a URL."""
    parts, at = [], 0
    while (found := names.search(text, at)) is not None:
        parts.append(text[at : found.end()])
        at = found.end()
        if not is_secret_name(found["name"]):
            continue
        value = values.match(text, at)
        if value is not None and value[0]:
            parts.append(MASK)
            at = value.end()
    return "".join([*parts, text[at:]]) if parts else text


def mask_header(name: str, value: str) -> str:
    """The value of a header, which is shown where the header is known to be harmless."""
    return mask_text(value) if name.strip().lower() in HARMLESS_HEADERS else MASK


def mask_headers(headers: Any) -> Any:
    """By name; several sets of headers are masked one by one."""
    if isinstance(headers, Mapping):
        return {name: mask_header(str(name), str(value)) for name, value in headers.items()}
    if isinstance(headers, list | tuple):
        return type(headers)(mask_headers(one) for one in headers)
    return MASK if headers else headers


def mask_options(words: Iterable[Any]) -> list[str]:
    """Options of curl: all names, and values of harmless options."""
    return list(_masked_words([str(word) for word in words]))


def _masked_words(words: list[str]) -> Iterator[str]:
    option = ""
    for word in words:
        if not word.startswith("-"):
            yield _value_of(option, word)
            continue
        option, equals, value = _split_option(word)
        yield f"{option}{equals}{_value_of(option, value)}" if value else word


def _split_option(word: str) -> tuple[str, str, str]:
    """`--user=a:b` and `-ua:b` have their value with them."""
    if word.startswith("--"):
        return word.partition("=")
    return word[:_SHORT], "", word[_SHORT:]


def _value_of(option: str, value: str) -> str:
    if option in _HEADER_OPTIONS:
        name, colon, text = value.partition(":")
        return f"{name}{colon} {mask_header(name, text.strip())}" if colon else MASK
    return mask_text(value) if option in _HARMLESS_OPTIONS else MASK


def mask_command(words: Iterable[str]) -> list[str]:
    """A command line of a user's program: what follows an option with a secret name."""
    shown, before = [], ""
    for word in words:
        option = before.startswith("-") and "=" not in before
        secret = option and is_secret_name(before.lstrip("-"))
        shown.append(MASK if secret else mask_text(word))
        before = word
    return shown


def mask_values(value: Any) -> Any:
    """Arguments: every value, however deep; names, booleans and null stay."""
    if isinstance(value, Mapping):
        return {name: mask_values(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask_values(inner) for inner in value]
    return value if value is None or isinstance(value, bool) else MASK


def mask_login(url: Any) -> Any:
    """A proxy's URL: whatever else is wrong with it, up to the last `@` is hidden."""
    if isinstance(url, list | tuple):
        return type(url)(mask_login(one) for one in url)
    url = str(url)
    scheme, slashes, rest = url.rpartition("://") if url.count("://") == 1 else ("", "", url)
    _, login, place = rest.rpartition("@")
    return mask_text(f"{scheme}{slashes}{f'{MASK}@' if login else ''}{place}")
