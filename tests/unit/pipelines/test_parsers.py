"""Parsers: what each reads, and what it refuses with a reason."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.pipelines.document import ParsePart
from skep.pipelines.engine.parsers import Unreadable, make_parser

CSV = ParsePart(kind="csv", columns=("a", "b"))
REGEX = ParsePart(kind="regex", pattern=r"^(?P<ip>\S+) (?P<code>\d+)")
LOGFMT = ParsePart(kind="logfmt")
MSGPACK = ParsePart(kind="msgpack")
EVERY = [ParsePart(), CSV, REGEX, LOGFMT, MSGPACK]


@pytest.mark.parametrize(
    ("part", "body", "fields"),
    [
        (ParsePart(), b'{"a": [1, null]}', {"a": [1, None]}),
        (CSV, b'1,"x, y"\r\n', {"a": "1", "b": "x, y"}),
        (ParsePart(kind="csv", columns=("a", "b"), separator=";"), b"1;2", {"a": "1", "b": "2"}),
        (REGEX, b"10.0.0.1 200 ok", {"ip": "10.0.0.1", "code": "200"}),
        (LOGFMT, b'a=1 b="x \\"y\\"\\n" c= d', {"a": "1", "b": 'x "y"\n', "c": "", "d": True}),
        (LOGFMT, "grüße=jo".encode(), {"grüße": "jo"}),
        (MSGPACK, msgspec.msgpack.encode({"a": {"b": 1}}), {"a": {"b": 1}}),
    ],
)
def test_what_is_read(part: ParsePart, body: bytes, fields: dict[str, Any]) -> None:
    assert make_parser(part)(body) == fields


@pytest.mark.parametrize(
    ("part", "body", "reason"),
    [
        (CSV, b"1,2,3", "3 columns instead of 2"),
        (CSV, b"", "0 columns instead of 2"),
        (CSV, b"\xff,1", "not UTF-8"),
        (CSV, b'"' + b"x" * 200_000 + b'",1', "not CSV"),
        (REGEX, b"nothing here", "does not match"),
        (REGEX, b"x" * 200_000, "exceeds 100000 characters"),
        (LOGFMT, b'a="x', "has no end"),
        (LOGFMT, b"=1", "no name at character 1"),
        (LOGFMT, b"  ", "no pairs"),
        (LOGFMT, b'a="\\" ' * 50_000, "not logfmt"),
        (MSGPACK, b"\xc1", "not MessagePack"),
        (MSGPACK, b"\xdf\xff\xff\xff\xff", "not MessagePack"),
        (MSGPACK, b"\x91" * 500_000, "nested deeper"),
        (MSGPACK, b"\x81\x01\x02", "a name that is not text"),
        (MSGPACK, b"\x81\xa1a" * 100 + b"\x01", "nested deeper"),
        (MSGPACK, b"\x81\x91\x01\x02", "not MessagePack"),
        (ParsePart(max_bytes=3), b'{"a": 1}', "the message has 8 bytes; the limit is 3"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_refused(part: ParsePart, body: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        make_parser(part)(body)


@pytest.mark.parametrize("part", EVERY, ids=lambda part: part.kind)
@given(body=st.binary(max_size=200))
def test_any_bytes_give_fields_or_a_reason(part: ParsePart, body: bytes) -> None:
    with suppress(Unreadable):
        assert all(isinstance(name, str) for name in make_parser(part)(body))
