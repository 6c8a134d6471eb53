"""Masks credentials in text, headers, options and URLs with `***`. Pure.

Every process uses it: centers for answers to read-only callers, all of them for log lines. It
denies by default: names of headers, options and arguments are shown, values only where the
name is known to be harmless.
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
    accept accept-charset accept-encoding accept-language accept-ranges age allow alt-svc
    cache-control connection content-disposition content-encoding content-language content-length
    content-location content-range content-security-policy content-type date dnt etag
    expect expires host if-match if-modified-since if-none-match if-range if-unmodified-since
    keep-alive last-modified location origin permissions-policy pragma priority range referer
    referrer-policy retry-after save-data
    sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform sec-fetch-dest sec-fetch-mode sec-fetch-site
    sec-fetch-user server strict-transport-security te trailer transfer-encoding upgrade
    upgrade-insecure-requests user-agent vary via x-archive-cut-headers
    x-archive-orig-content-encoding x-archive-orig-content-length x-archive-orig-transfer-encoding
    x-cache x-content-type-options x-frame-options x-powered-by x-requested-with x-robots-tag
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

#: Options of curl whose next word is a credential, even if it starts with a dash.
_SECRET_OPTIONS = frozenset(
    """
    -u --user -U --proxy-user -b --cookie -H --header --proxy-header --oauth2-bearer --pass
    --proxy-pass -x --proxy -E --cert -d --data --data-raw --data-binary --data-urlencode
    """.split()  # noqa: SIM905 - a list of words
)

#: Words that make a name secret at any position in it, and whole secret names.
_SECRET_WORD = re.compile(
    r"pass(?!ed|es\b|ing|ive|age|enger|port)|pwd|secret|token|auth(?!or\b)|credential|signature"
    r"|(?:api|app|access|account|client|consumer|licen[cs]e|master|private|shared|subscription)"
    r".?key|[-_.]key$|session|jwt|bearer|cookie|csrf|xsrf",
    re.IGNORECASE,
)
_SECRET_NAMES = frozenset({"key", "sig", "sid", "pw", "pin", "otp", "apikey", "hmac"})
#: Keys of the name and of the value in lists of pairs.
_PAIR_NAMES = ("name", "key", "header", "field")
_PAIR_VALUES = frozenset({"value", "val", "content", "data"})
_PAIR_LENGTH = 2

_SLASH = r"(?:\\*/|%(?:25)*5c/|%(?:25)*2f)"
_AT = r"(?:@|%(?:25)*40)"
#: `//user:password@`, plain, escaped or percent-encoded, up to the last `@` before the path.
#: Quotes, `&` and `<` can be part of a password: it masks too much rather than too little.
_LOGIN = re.compile(
    rf"({_SLASH}{{2}}|(?<=:)/)(?:(?!{_SLASH}|%(?:25)*(?:3f|23))[^\s/?#])*{_AT}", re.IGNORECASE
)
#: The same in a text that was cut before the `@`; a host with a port does not match, also before
#: a colon: `no center answers at http://10.0.0.1:8420: Connection refused`.
_CUT_LOGIN = re.compile(
    rf"({_SLASH}{{2}})(?!\[)[^\s/?#@:]*(?::|%(?:25)*3a)(?!\d{{0,5}}[:,;)]?(?:\s|\Z))[^\s/?#@]*(?=\s|\Z)",
    re.IGNORECASE,
)
#: `user:password@host` without a scheme, as proxies are written.
_BARE_LOGIN = re.compile(
    r"(?<![\w.%:/@-])(?!(?:mailto|xmpp|sips?|acct):)[\w.%+-]{1,64}:[^\s@/,\"'<>]{1,256}@(?=[\w\[])",
    re.IGNORECASE,
)
#: `name=` after `?`, `&`, `;`, `#` or at the start of a word, and the extent of its value.
_PAIR = re.compile(
    r"(?:^|[\s?&;#,\"'(\[{]|%(?:25)*(?:3f|26|23|3b|20|2c))(?:--)?"
    r"(?P<name>[^\s=&?#;,:/\"'(\[{]{1,200}?)\\*[\"']?\s?(?:=>?|%(?:25)*3d)\s?",
    re.IGNORECASE,
)
_PAIR_VALUE = re.compile(r"(?:(?!%(?:25)*(?:26|23))[^\s&#])*", re.IGNORECASE)
#: `Name:`, as in headers and JSON; its value ends with the line or the string.
_LINE = re.compile(
    r"(?<![\w%-])(?P<name>[\w%-]{2,200})\\*[\"']?\s?(?::|%(?:25)*3a)\s?", re.IGNORECASE
)
_LINE_VALUE = re.compile(r"[^\r\n]*")
#: `--name value` and `<name>value`.
_WORD = re.compile(r"(?<!\S)--(?P<name>[\w-]{2,64})\s+")
_WORD_VALUE = re.compile(r"\S*")
_TAG = re.compile(r"<(?P<name>[\w:.-]{2,64})>\s*")
_TAG_VALUE = re.compile(r"[^<]*")
_QUOTE = re.compile(r"\\*[\"']")
_USER_OPTION = re.compile(r"(?<!\S)(-[uU]\s?[\"']?)[^\s:]{1,256}:\S+")
_SCHEMES = re.compile(r"\b(bearer|basic|digest|negotiate)(\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
_HINTS = re.compile(
    r"[@=:]|%(?:25)*(?:40|3d|3a)|--|<|(?:bearer|basic|digest|negotiate)\s", re.IGNORECASE
)
#: A credential of this program: `skep_admin_` and 39 random characters. No name stands before it
#: when code prints a token.
_OWN = re.compile(r"(skep_[a-z]{2,16}_)[0-9a-v]{30,}")
#: Layers of percent-encoding removed from a name: a URL in a URL in a URL.
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
    """Masks logins in URLs, password-like parameters, authentication headers, and tokens, session
    ids and login links of this program in any text."""
    if "skep_" in text:
        text = _OWN.sub(rf"\1{MASK}", text)
    if _HINTS.search(text) is None:
        return text
    text = _LOGIN.sub(rf"\1{MASK}@", text)
    text = _CUT_LOGIN.sub(rf"\1{MASK}", text)
    text = _USER_OPTION.sub(rf"\1{MASK}", text)
    text = _mask_values(text, _PAIR, _PAIR_VALUE)
    text = _mask_values(text, _LINE, _LINE_VALUE)
    text = _mask_values(text, _WORD, _WORD_VALUE)
    text = _mask_values(text, _TAG, _TAG_VALUE)
    text = _BARE_LOGIN.sub(rf"{MASK}@", text)
    return _SCHEMES.sub(rf"\1\2{MASK}", text)


def _mask_values(text: str, names: re.Pattern[str], values: re.Pattern[str]) -> str:
    """Masks the value after each secret name. A loop: URLs can be nested."""
    parts, at = [], 0
    while (found := names.search(text, at)) is not None:
        parts.append(text[at : found.end()])
        at = found.end()
        if not is_secret_name(found["name"]):
            continue
        start, end = _value_at(text, at, values)
        if end > start:
            parts += [text[at:start], MASK]
            at = end
    return "".join([*parts, text[at:]]) if parts else text


def _value_at(text: str, at: int, values: re.Pattern[str]) -> tuple[int, int]:
    """Where a value starts and ends. A quoted value ends at the same quote with the same number
    of backslashes; a value in brackets, or after a space, ends with its line."""
    quote = _QUOTE.match(text, at)
    if quote is not None:
        closing = re.compile(rf"(?<!\\){re.escape(quote[0])}").search(text, quote.end())
        return quote.end(), closing.start() if closing else len(text)
    spaced = values is _PAIR_VALUE and text[at - 1] == " "
    if spaced or text[at : at + 1] in {"[", "{", "("}:
        values = _LINE_VALUE
    value = values.match(text, at)
    return at, value.end() if value else at


def mask_header(name: str, value: str) -> str:
    """The value of a header, shown only if the header is known to be harmless."""
    return mask_text(value) if name.strip().lower() in HARMLESS_HEADERS else MASK


def mask_headers(headers: Any) -> Any:
    """Masks headers by name; several sets of headers are masked one by one."""
    if isinstance(headers, Mapping):
        return {name: mask_header(str(name), str(value)) for name, value in headers.items()}
    if isinstance(headers, list | tuple):
        return type(headers)(mask_headers(one) for one in headers)
    return MASK if headers else headers


def mask_options(words: Iterable[Any]) -> list[str]:
    """Options of curl: shows all names, and the values of harmless options."""
    return list(_masked_words([str(word) for word in words]))


def _masked_words(words: list[str]) -> Iterator[str]:
    option, secret = "", False
    for word in words:
        if secret or not word.startswith("-"):
            yield _value_of(option, word)
            secret = False
            continue
        option, equals, value = _split_option(word)
        secret = not (equals or value) and option in _SECRET_OPTIONS
        yield f"{option}{equals}{_value_of(option, value)}" if value else word


def _split_option(word: str) -> tuple[str, str, str]:
    """Splits `--user=a:b` and `-ua:b`, which include their value."""
    if word.startswith("--"):
        return word.partition("=")
    return word[:_SHORT], "", word[_SHORT:]


def _value_of(option: str, value: str) -> str:
    if option in _HEADER_OPTIONS:
        name, colon, text = value.partition(":")
        return f"{name}{colon} {mask_header(name, text.strip())}" if colon else MASK
    return mask_text(value) if option in _HARMLESS_OPTIONS else MASK


def mask_command(words: Iterable[str]) -> list[str]:
    """The command line of a user's program: option names are shown. The word after a short option
    or after one with a secret name is hidden, and so is text attached to a short option."""
    shown, hide = [], False
    for word in words:
        long, short = word.startswith("--"), len(word) > 1 and word[0] == "-"
        if long or not short:
            shown.append(MASK if hide and not long else mask_text(word))
        else:
            shown.append(f"{word[:_SHORT]}{MASK if word[_SHORT:] else ''}")
        hide = is_secret_name(word[2:]) and "=" not in word if long else short and word != "-m"
    return shown


def mask_values(value: Any) -> Any:
    """Masks every value at any depth; names, booleans and null stay."""
    if isinstance(value, Mapping):
        return {name: mask_values(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask_values(inner) for inner in value]
    return value if value is None or isinstance(value, bool) else MASK


def names_secret(pair: Any) -> bool:
    """Whether the other half of this pair is a credential: `[name, value]`, or a mapping that
    has the name under `name` or the like."""
    if isinstance(pair, Mapping):
        named = [pair[key] for key in _PAIR_NAMES if isinstance(pair.get(key), str)]
        return any(map(is_secret_name, named))
    if len(pair) != _PAIR_LENGTH or not isinstance(pair[0], str):
        return False
    return is_secret_name(pair[0])


def is_pair_value(name: str) -> bool:
    """Whether a mapping has the value of a pair under this key."""
    return name.lower() in _PAIR_VALUES


def mask_login(url: Any) -> Any:
    """The URL of a proxy, hidden up to the last `@`, even if the URL is not valid."""
    if isinstance(url, list | tuple):
        return type(url)(mask_login(one) for one in url)
    url = str(url)
    scheme, slashes, rest = url.rpartition("://") if url.count("://") == 1 else ("", "", url)
    _, login, place = rest.rpartition("@")
    return mask_text(f"{scheme}{slashes}{f'{MASK}@' if login else ''}{place}")
