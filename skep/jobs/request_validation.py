"""Converts requests of callers to stored ones: URL, scheme, priority, fingerprint. Pure.

All or nothing: the first invalid request refuses the whole batch, and the error names its
position. Runs once per accepted request, so the common case is one regular expression and
one hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from random import Random
from urllib.parse import quote

import msgspec

from skep.errors import InvalidInput, NotAUrl, SkepError, TooLarge, UnknownScheme
from skep.jobs.definitions.code_check import check_code
from skep.jobs.definitions.proxy_check import check_proxies
from skep.model.content_rules import ContentRules
from skep.model.downloader_kinds import HTTP, downloader_kind, kind_names, names_with
from skep.model.fleet.placement import Placement
from skep.model.fleet.strategy_traits import strategy_names
from skep.model.hosts.host import site_of
from skep.model.hosts.url import BadUrl, Url, read_url
from skep.model.lane import HIGHEST, LOWEST
from skep.model.request import BODY_LIMIT, EXPIRY_LIMIT, URI_LIMIT, NewRequest, Offered
from skep.model.run import RunSettings
from skep.store.ports.requests import RequestRow

FINGERPRINT_BYTES = 16
#: Maximum number of requests in one call; larger batches must be sent in parts.
BATCH_LIMIT = 50_000

#: Characters that no URL may contain; they would end it, or a line of a log.
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]")
_METHOD = re.compile(r"[A-Z]{1,20}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
#: Characters that stay in a URI; all others are percent-encoded.
_KEEP = "!$%&'()*+,/:;=?@[]~"
_UNSAFE = re.compile(r"[^!$%&'()*+,/:;=?@\[\]~\w.-]", re.ASCII)
#: In user names and passwords, `@`, `/` and brackets would mark the beginning of the host.
_KEEP_CREDENTIALS = "!$%&'()*+,:;=~"
_DEFAULT_PORTS = {"http": 80, "https": 443}
JOB_LIMIT = 200
PLAIN = HTTP.name


class Validator:
    """Knows which schemes have a downloader, and the default priority."""

    def __init__(
        self, schemes: Iterable[str], rng: Random, downloaders: Iterable[str] | None = None
    ) -> None:
        self._schemes = frozenset(schemes)
        self._downloaders = frozenset(kind_names() if downloaders is None else downloaders)
        self._rng = rng

    @property
    def downloaders(self) -> frozenset[str]:
        """Kinds that have a downloader."""
        return self._downloaders

    def check_settings(self, settings: RunSettings) -> None:
        """Raises InvalidInput for settings that agents do not support."""
        if settings.downloader not in self._downloaders:
            known = ", ".join(sorted(self._downloaders))
            raise InvalidInput(
                f"there is no downloader {settings.downloader[:50]!r}; use one of {known}"
            )
        if problem := strategy_problem(settings.placement):
            raise InvalidInput(f"placement.strategy {problem}")
        for name, value in settings.headers.items():
            check_header(name, value)
        check_code(settings)
        check_proxies(settings, check_header)
        if settings.content is not None:
            check_content(settings.content, settings.downloader)

    def rows(
        self, offered: Sequence[Offered], priority: int, now: float, downloader: str = PLAIN
    ) -> list[RequestRow]:
        """Every request as it will be stored; raises InvalidInput, which names the invalid one."""
        anything = downloader_kind(downloader).any_scheme
        if len(offered) > BATCH_LIMIT:
            raise TooLarge(f"{len(offered)} requests in one call; send at most {BATCH_LIMIT}")
        rows: list[RequestRow] = []
        for place, item in enumerate(offered):
            try:
                rows.append(self._row(item, priority, now, anything))
            except SkepError as error:
                raise type(error)(f"request {place}: {error.detail}") from None
        return rows

    def _row(self, item: Offered, priority: int, now: float, anything: bool) -> RequestRow:
        if isinstance(item, str):
            uri, host = self._uri(item, anything)
            return RequestRow(fingerprint_of(uri), uri, host, priority, b"")
        uri, host = self._uri(item.uri, anything)
        _check(item)
        return RequestRow(
            self._fingerprint(item, uri),
            uri,
            host,
            priority if item.priority is None else item.priority,
            _arguments(item),
            None if item.expires_in is None else now + item.expires_in,
            item.parent,
        )

    def _uri(self, text: str, anything: bool) -> tuple[str, str]:
        """(URI in ASCII without fragment, the site that its host belongs to)."""
        if len(text) > URI_LIMIT:
            raise TooLarge(f"the URL has {len(text)} characters; the limit is {URI_LIMIT}")
        try:
            url = read_url(text)
        except BadUrl as error:
            raise NotAUrl(str(error)) from error
        if not anything and url.scheme not in self._schemes:
            known = ", ".join(sorted(self._schemes))
            raise UnknownScheme(f"no downloader supports {url.scheme}://; use one of {known}")
        if url.plain and not url.port and not _UNSAFE.search(url.rest):
            return text, site_of(url.host)
        uri = _encoded(text, url)
        if len(uri) > URI_LIMIT:
            raise TooLarge(f"the URL has {len(uri)} characters encoded; the limit is {URI_LIMIT}")
        return uri, site_of(url.host)

    def _fingerprint(self, item: NewRequest, uri: str) -> bytes:
        if item.again:
            return self._rng.getrandbits(8 * FINGERPRINT_BYTES).to_bytes(FINGERPRINT_BYTES, "big")
        if item.fingerprint:
            return _digest(b"own", item.fingerprint.encode())
        if item.session:
            return _digest(item.method.encode(), uri.encode(), item.body, item.session.encode())
        if item.method == "GET" and not item.body:
            return fingerprint_of(uri)
        return _digest(item.method.encode(), uri.encode(), item.body)


def fingerprint_of(uri: str) -> bytes:
    """The fingerprint of a plain GET: equal URIs are one request."""
    return blake2b(uri.encode(), digest_size=FINGERPRINT_BYTES).digest()


def _digest(*parts: bytes) -> bytes:
    # Lengths are included: ("a", "bc") and ("ab", "c") must differ.
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return blake2b(framed, digest_size=FINGERPRINT_BYTES).digest()


def _encoded(text: str, url: Url) -> str:
    """The URI as it is stored, in ASCII and without a fragment; raises NotAUrl."""
    if _SPACE.search(text):
        raise NotAUrl(f"{text[:200]!r} is not a URL; write it as scheme://host/path")
    try:
        return f"{url.scheme}://{_authority(url)}{_rest(url.rest)}"
    except UnicodeError as error:
        raise NotAUrl(f"{text[:200]!r} is not a URL: {error}") from error


def _rest(rest: str) -> str:
    """Path and query in ASCII; the path is never empty."""
    if _UNSAFE.search(rest):
        rest = quote(rest, safe=_KEEP)
    return rest if rest.startswith("/") else f"/{rest}"


def _authority(url: Url) -> str:
    """Credentials, host and port in ASCII; the default port of the scheme is left out."""
    port = f":{url.port}" if url.port and url.port != _DEFAULT_PORTS.get(url.scheme) else ""
    if not url.credentials:
        return f"{url.host}{port}"
    return f"{quote(url.credentials, safe=_KEEP_CREDENTIALS)}@{url.host}{port}"


def _check(item: NewRequest) -> None:
    if item.priority is not None and not HIGHEST <= item.priority <= LOWEST:
        raise InvalidInput(f"priority {item.priority} is out of range; use {HIGHEST} to {LOWEST}")
    if not _METHOD.fullmatch(item.method):
        raise InvalidInput(f"method {item.method[:50]!r} is not valid; use capital letters")
    if len(item.body) > BODY_LIMIT:
        raise TooLarge(f"the body has {len(item.body)} bytes; the limit is {BODY_LIMIT}")
    if item.expires_in is not None and not 0 < item.expires_in <= EXPIRY_LIMIT:
        raise InvalidInput(f"expires_in must be more than 0 and at most {EXPIRY_LIMIT:.0f} seconds")
    for name, value in item.headers.items():
        check_header(name, value)


def check_header(name: str, value: str) -> None:
    """Raises InvalidInput: a value with a line break would inject a second header."""
    if not _HEADER_NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:100]!r} is not a valid header name; use letters, digits and dashes"
        )
    if not value.isprintable():
        raise InvalidInput(f"the value of header {name} has a control character; remove it")


def check_content(rules: ContentRules, downloader: str = PLAIN) -> None:
    """Compile the rules only to refuse those that no agent could use."""
    from skep.downloaders.content_rules import BadRules, Cutting

    if not downloader_kind(downloader).cuts_content:
        known = names_with("cuts_content")
        raise InvalidInput(f"content rules are for {known}, not for {downloader}")
    try:
        Cutting(rules)
    except BadRules as error:
        raise InvalidInput(str(error)) from error


def strategy_problem(placement: Placement) -> str:
    """The problem if this center does not have the strategy; "" if it has."""
    known = strategy_names()
    if placement.strategy in known:
        return ""
    return f"must be one of {', '.join(known)}; it is {placement.strategy!r}"


def check_job(name: str) -> None:
    """Raises InvalidInput: the name of a job is displayed and stored in a column."""
    if len(name) > JOB_LIMIT or not name.isprintable():
        raise InvalidInput(
            f"job name {name[:50]!r} is not valid; use up to {JOB_LIMIT} printable characters"
        )


def _arguments(item: NewRequest) -> bytes:
    """What `Work` needs in addition to id and uri; empty for a plain GET."""
    plain = item.method == "GET" and not item.headers and not item.body
    if plain and not item.meta and not item.session:
        return b""
    try:
        if item.meta:
            # It is returned as JSON later, so it is refused now if that is impossible.
            msgspec.json.encode(item.meta)
        parts = (item.method, item.headers, item.body, item.meta)
        return msgspec.msgpack.encode((*parts, item.session) if item.session else parts)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"meta cannot be stored as JSON: {error}; send plain JSON data"
        ) from error
