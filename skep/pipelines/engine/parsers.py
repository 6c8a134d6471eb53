"""Parsers: the bytes of a message become fields. Pure; hostile bytes get a reason, never a crash.

A parser refuses what is too long or nested too deeply before any other stage sees it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import msgspec

from skep.model.jobs.nesting_depth import DEPTH_LIMIT, too_deep
from skep.model.pipelines.document import ParsePart
from skep.pipelines.engine.logfmt import parse_logfmt
from skep.pipelines.expressions.limits import SIZE_LIMIT
from skep.pipelines.expressions.patterns import compile_pattern

Parser = Callable[[bytes], dict[str, Any]]


class Unreadable(ValueError):
    """The bytes are not a message; the text says why, without the bytes."""


def make_parser(part: ParsePart) -> Parser:
    """The parser of a part, with its bound on bytes."""
    read = _MAKERS[part.kind](part)

    def parse(body: bytes) -> dict[str, Any]:
        if len(body) > part.max_bytes:
            told = f"the message has {len(body)} bytes; the limit is {part.max_bytes}"
            raise Unreadable(told)
        return read(body)

    return parse


def _json(_part: ParsePart) -> Parser:
    decode = msgspec.json.Decoder().decode

    def read(body: bytes) -> dict[str, Any]:
        try:
            return _checked(decode(body), body.count(b"[") + body.count(b"{"))
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Unreadable(f"not JSON: {error}") from None
        except RecursionError:
            raise Unreadable(_TOO_DEEP) from None

    return read


def _msgpack(_part: ParsePart) -> Parser:
    decode = msgspec.msgpack.Decoder().decode

    def read(body: bytes) -> dict[str, Any]:
        try:
            return _checked(decode(body), len(body))
        except (msgspec.DecodeError, UnicodeError, TypeError, ValueError, OverflowError) as error:
            raise Unreadable(f"not MessagePack: {error}") from None
        except RecursionError:
            raise Unreadable(_TOO_DEEP) from None

    return read


_TOO_DEEP = f"the message is nested deeper than {DEPTH_LIMIT} levels"


def _checked(found: Any, opening: int) -> dict[str, Any]:
    """`opening` is at least the depth, so that shallow messages are not walked."""
    if type(found) is not dict:
        raise Unreadable("the message is not an object with fields")
    if opening > DEPTH_LIMIT and too_deep(found) is not None:
        raise Unreadable(_TOO_DEEP)
    if not all(type(name) is str for name in found):
        raise Unreadable("a field has a name that is not text")
    return found


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 text (byte {error.start})") from None


def _csv(part: ParsePart) -> Parser:
    def read(body: bytes) -> dict[str, Any]:
        try:
            rows = list(csv.reader([_text(body).rstrip("\r\n")], delimiter=part.separator))
        except csv.Error as error:
            raise Unreadable(f"not CSV: {error}") from None
        cells = rows[0] if rows else []
        # The limit of the csv module belongs to the whole process, so it is not relied on.
        if any(len(cell) > SIZE_LIMIT for cell in cells):
            raise Unreadable(f"not CSV: a cell exceeds {SIZE_LIMIT} characters")
        if len(cells) != len(part.columns):
            raise Unreadable(f"{len(cells)} columns instead of {len(part.columns)}")
        return dict(zip(part.columns, cells, strict=True))

    return read


def _regex(part: ParsePart) -> Parser:
    search = compile_pattern(part.pattern).search

    def read(body: bytes) -> dict[str, Any]:
        text = _text(body)
        if len(text) > SIZE_LIMIT:
            raise Unreadable(f"the text exceeds {SIZE_LIMIT} characters")
        if (match := search(text)) is None:
            raise Unreadable("the pattern does not match")
        return dict(match.groupdict())

    return read


def _logfmt(_part: ParsePart) -> Parser:
    def read(body: bytes) -> dict[str, Any]:
        try:
            return parse_logfmt(_text(body))
        except ValueError as error:
            raise Unreadable(f"not logfmt: {error}") from None

    return read


_MAKERS: dict[str, Callable[[ParsePart], Parser]] = {
    "json": _json,
    "csv": _csv,
    "regex": _regex,
    "logfmt": _logfmt,
    "msgpack": _msgpack,
}
