"""A text becomes a line that is printable, bounded and without credentials, whatever it holds."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import Malformed
from skep.logs.line_format import (
    FIELDS_LIMIT,
    LINE_LIMIT,
    decode_entries,
    encode_entry,
    is_safe,
    make_entry,
    safe_text,
)
from skep.model.logs import LogEntry, level_bit, level_bits_from


@pytest.mark.parametrize(
    ("given_text", "stored"),
    [
        ("plain", "plain"),
        ("two\r\nlines\rthree", "two\nlines\nthree"),
        ("tab\tstays", "tab\tstays"),
        ("nul\0here", r"nul\x00here"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("c1 \x9b and del \x7f", r"c1 \x9b and del \x7f"),
        ("turned \u202e around", r"turned \u202e around"),
        (b"broken \xff\xfe utf-8", r"broken \xff\xfe utf-8"),
        (b"cut \xe4\xb8", r"cut \xe4\xb8"),
        ("half \ud800 letter", r"half \xed\xa0\x80 letter"),
        ("蜂巢", "蜂巢"),
    ],
)
def test_controls_and_broken_text_become_visible(given_text: str | bytes, stored: str) -> None:
    assert safe_text(given_text) == stored


def test_a_line_of_ten_megabytes_is_cut_quickly_and_says_how_much() -> None:
    begun = time.process_time()
    text = safe_text("a=" * 5_000_000)
    assert time.process_time() - begun < 1.0
    assert len(text.encode()) <= LINE_LIMIT
    kept = len(text[: text.rindex(" [")])
    assert text.endswith(f" [{10_000_000 - kept:,} bytes cut]")


def test_a_cut_never_halves_a_letter() -> None:
    for shift in range(4):
        text = safe_text("x" * shift + "蜂" * 40_000)
        assert "\\x" not in text
        assert len(text.encode()) <= LINE_LIMIT


@pytest.mark.parametrize(
    "secret_text",
    [
        "GET https://user:hunter2@example.com/",
        "password=hunter2 accepted",
        "Authorization: Bearer hunter2hunter2",
        "x" * (LINE_LIMIT - 20) + " password=hunter2" + "y" * 100,
    ],
)
def test_credentials_are_masked(secret_text: str) -> None:
    assert "hunter2" not in safe_text(secret_text)


def test_fields_are_masked_by_name_and_content_however_deep() -> None:
    fields = {"token": "hunter2", "url": "http://a:hunter2@b/", "in": [{"password": "hunter2"}]}
    entry = make_entry(1.0, 20, "text", {**fields, "job": "quotes", "pages": 3})
    assert "hunter2" not in encode_entry(entry).decode()
    assert (entry.fields["job"], entry.fields["pages"]) == ("quotes", 3)


def test_fields_that_json_cannot_hold_become_text() -> None:
    entry = make_entry(
        1.0, 20, "t", {"b": b"\xff", "o": object, "i": float("inf"), "s": {1}, "n": 2**80}
    )
    assert entry.fields["b"] == "\\xff"
    assert entry.fields["i"] == "inf"
    assert entry.fields["s"] == [1]
    assert entry.fields["n"] == str(2**80)
    assert isinstance(entry.fields["o"], str)


@pytest.mark.parametrize("fields", [{"curl": 1}, {"curl": True}, {"proxy": {}}, {"headers": 5}])
def test_fields_that_the_masker_does_not_expect_are_hidden(fields: dict[str, Any]) -> None:
    """A field may have the name of a field of ours and another type."""
    entry = make_entry(1.0, 20, "t", {**fields, "password": "hunter2"})
    assert "hunter2" not in encode_entry(entry).decode()


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("shown", ["<int>", "<Unspeakable>"])
def test_an_object_that_cannot_be_shown_does_not_cost_the_line(shown: str) -> None:
    value = 10**5000 if shown == "<int>" else Unspeakable()
    assert make_entry(1.0, 20, "t", {"a": value}).fields == {"a": shown}


def test_fields_over_the_limit_are_replaced_by_their_size() -> None:
    entry = make_entry(1.0, 20, "t", {"a": "x" * (FIELDS_LIMIT + 1)})
    assert entry.fields == {"cut_bytes": FIELDS_LIMIT + 1 + len('{"a":""}')}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def test_fields_nested_too_deep_do_no_harm() -> None:
    assert is_safe(make_entry(1.0, 20, "t", {"a": nested(500)}))


@given(st.text() | st.binary(), st.dictionaries(st.text(), st.text() | st.integers()))
def test_every_entry_is_safe_and_is_one_json_line(text: str | bytes, fields: Any) -> None:
    entry = make_entry(1.5, 20, text, fields)
    line = encode_entry(entry)
    assert is_safe(entry)
    assert b"\n" not in line
    assert decode_entries(line) == [entry]


@pytest.mark.parametrize("text", ["nul \0", "x" * (LINE_LIMIT + 1), "蜂" * 30_000, "\x9b", "\r"])
def test_an_entry_that_was_not_made_here_is_found_out(text: str) -> None:
    assert not is_safe(LogEntry(1.0, 20, text))


@pytest.mark.parametrize(
    "lines",
    [b"{", b'{"time":"x"}', b"\xff", b'{"time":1,"level":2,"text":"\xff"}', b"[" * 100_000],
)
def test_an_invalid_entry_is_refused(lines: bytes) -> None:
    with pytest.raises(Malformed):
        decode_entries(lines)


def test_deep_fields_on_the_wire_are_refused() -> None:
    line = b'{"time":1,"level":2,"text":"","fields":' + b'{"a":' * 50_000 + b"}" * 50_001
    with pytest.raises(Malformed):
        decode_entries(line)


@pytest.mark.parametrize("value", ["\0", "\u202e", {"\x1b": 1}, ["\x9b"]])
def test_fields_that_were_not_made_here_are_found_out(value: Any) -> None:
    assert not is_safe(LogEntry(1.0, 20, "t", {"a": value}))
    assert is_safe(make_entry(1.0, 20, "t", {"a": value}))


def test_levels_as_bits() -> None:
    assert [level_bit(level) for level in (-5, 0, 10, 20, 25, 50, 99)] == [1, 1, 2, 4, 4, 32, 32]
    assert level_bits_from(30) == level_bit(30) | level_bit(40) | level_bit(50)
    assert level_bits_from(0) == 63


def test_entries_without_fields_are_short() -> None:
    assert msgspec.json.decode(encode_entry(LogEntry(1.0, 20, "a"))) == {
        "time": 1.0,
        "level": 20,
        "text": "a",
    }
