"""Merges and checks request headers for libcurl. Pure; runs on agents.

Headers of a request override those of the run, which override the defaults. A header with a line
break or NUL is never sent, and secrets are neither archived nor sent to another origin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from skep import __version__
from skep.archive.content_decoding import ACCEPTED
from skep.runtime.masking import is_secret_name

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NOT_IN_A_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: libcurl writes these itself; a second value could split the request in two.
_OF_THE_ENGINE = frozenset({"content-length", "transfer-encoding", "connection"})
_OF_THE_BODY = frozenset({"content-type", "content-encoding", "content-language"})
_OURS = {"Accept": "*/*", "Accept-Encoding": ACCEPTED, "User-Agent": f"Skep/{__version__}"}

#: Lower-case name to name and value as they are sent.
Fields = dict[str, tuple[str, str]]


class BadHeader(Exception):
    """A header that must not be sent; the text says why."""


class Outgoing(NamedTuple):
    """The headers of one request, in the three forms that are needed."""

    fields: Fields
    #: In libcurl's form.
    lines: list[bytes]
    #: For the archive, without secrets.
    shown: tuple[tuple[str, str], ...]


def run_headers(headers: Mapping[str, str]) -> Outgoing:
    """The headers of every request of a run; raises BadHeader."""
    fields: Fields = {name.lower(): (name, value) for name, value in _OURS.items()}
    return _ready(_merged(fields, headers))


def request_headers(run: Outgoing, headers: Mapping[str, str]) -> Outgoing:
    """The headers of one request; raises BadHeader."""
    return _ready(_merged(run.fields, headers)) if headers else run


def for_next_hop(current: Outgoing, *, same_origin: bool, with_body: bool) -> Outgoing:
    """Headers after a redirect: secrets stay in their origin, a dropped body has no type."""
    secret = {"host", *(key for key in current.fields if is_secret_name(key))}
    dropped = set() if same_origin else secret
    if not with_body:
        dropped = dropped | _OF_THE_BODY
    if dropped.isdisjoint(current.fields):
        return current
    kept = {key: pair for key, pair in current.fields.items() if key not in dropped}
    return _ready(kept)


def _merged(fields: Fields, headers: Mapping[str, str]) -> Fields:
    merged = dict(fields)
    for name, value in headers.items():
        if _NAME.fullmatch(name) is None:
            raise BadHeader(f"header name {name[:40]!r} is not allowed")
        if _NOT_IN_A_VALUE.search(value) is not None:
            raise BadHeader(f"header {name} contains a line break or another control character")
        if name.lower() not in _OF_THE_ENGINE:
            merged[name.lower()] = (name, value.strip())
    return merged


def _ready(fields: Fields) -> Outgoing:
    lines = [_line(name, value) for name, value in fields.values()]
    lines.append(b"Expect:")
    if "content-type" not in fields:
        # Else libcurl sends every body as a web form.
        lines.append(b"Content-Type:")
    shown = tuple(pair for key, pair in fields.items() if not is_secret_name(key))
    return Outgoing(fields, lines, shown)


def _line(name: str, value: str) -> bytes:
    """A line in libcurl's form; an empty header needs a semicolon, or it is left out."""
    text = f"{name}: {value}" if value else f"{name};"
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()
