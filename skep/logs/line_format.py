"""Turns every text into a log line: printable, bounded, without credentials. Pure.

Every process calls it where the line is made, before the line is on any disk or wire. Centers
check the result (`is_safe`) instead of trusting it. It must never raise because of a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from skep.errors import Malformed
from skep.model.logs import LogEntry, LogLine, LogSource
from skep.runtime.masked_answers import masked
from skep.runtime.masking import mask_text, mask_values

#: Bytes of a text, with the mark that says how much was cut.
LINE_LIMIT = 64 * 1024
#: Bytes of the fields of a line, as JSON.
FIELDS_LIMIT = 16 * 1024
_MARK_ROOM = 64
_DEEPEST = 8
_LAST_BYTE = 0xFF
#: Every JSON library accepts integers below this.
_INTEGERS = 2**63

#: Control characters except tab and newline, surrogates, and what reorders or breaks text.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e\u2066-\u2069]")
_RETURNS = re.compile("\r\n?")

_ENCODER = msgspec.json.Encoder(enc_hook=str)
_DECODER = msgspec.json.Decoder(LogEntry)


def make_entry(
    time: float, level: int, text: str | bytes, fields: Mapping[str, Any] | None = None
) -> LogEntry:
    """A line that may be stored."""
    return LogEntry(time, level, safe_text(text), safe_fields(fields or {}))


def safe_text(text: str | bytes) -> str:
    """Cut, printable and masked. Masking comes after the cut, so that it takes bounded time."""
    head, cut = _head(text)
    safe = mask_text(printable(head))
    if not cut and len(safe.encode()) <= LINE_LIMIT:
        return safe
    kept = _cut(safe.encode(), LINE_LIMIT - _MARK_ROOM)
    return f"{kept} [{cut + len(safe.encode()) - len(kept.encode()):,} bytes cut]"


def _head(text: str | bytes) -> tuple[str, int]:
    """(the beginning of a text, how many bytes follow it)."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(raw) <= LINE_LIMIT:
        return raw.decode("utf-8", "backslashreplace"), 0
    end = LINE_LIMIT
    while end > LINE_LIMIT - 4 and raw[end] & 0xC0 == 0x80:  # noqa: PLR2004 - inside a letter
        end -= 1
    return raw[:end].decode("utf-8", "backslashreplace"), len(raw) - end


def _cut(raw: bytes, size: int) -> str:
    return raw[:size].decode("utf-8", "ignore")


def printable(text: str) -> str:
    """Controls become visible escapes; a carriage return becomes a newline."""
    return _UNSAFE.sub(_escape, _RETURNS.sub("\n", text))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= _LAST_BYTE else f"\\u{code:04x}"


def is_safe(entry: LogEntry) -> bool:
    """Whether an entry that came over the wire may be stored as it is, apart from masking."""
    text = entry.text
    if len(text) > LINE_LIMIT or not (_is_plain(text) or _is_safe_text(text)):
        return False
    return not entry.fields or _are_safe_fields(entry.fields)


def _is_plain(text: str) -> bool:
    """The quick answer for most lines: ASCII without controls."""
    return text.isascii() and text.isprintable()


def _are_safe_fields(fields: dict[str, Any]) -> bool:
    encoded = _ENCODER.encode(fields)
    return (
        len(encoded) <= FIELDS_LIMIT
        and b"\\u00" not in encoded  # how JSON writes a control
        and _UNSAFE.search(encoded.decode()) is None
    )


def _is_safe_text(text: str) -> bool:
    return _UNSAFE.search(text) is None and len(text.encode()) <= LINE_LIMIT


def safe_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Masked by name and by content. Fields over the limit are replaced by their size."""
    if not fields:
        return {}
    plain = {printable(_said(name)): _plain(value, 1) for name, value in fields.items()}
    shown = _masked_fields(plain)
    size = len(_ENCODER.encode(shown))
    return shown if size <= FIELDS_LIMIT else {"cut_bytes": size}


def _masked_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The masker expects certain types under certain names; other values are all hidden."""
    try:
        shown: dict[str, Any] = masked(fields)
    except (TypeError, ValueError, AttributeError):
        shown = mask_values(fields)
    return shown


def _plain(value: Any, depth: int) -> Any:
    """Data that JSON can hold. What is nested too deep, and any other object, becomes a text."""
    if value is None or isinstance(value, bool) or _is_small(value):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {printable(_said(name)): _plain(inner, depth + 1) for name, inner in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner, depth + 1) for inner in value]
    return printable(_head(value if isinstance(value, bytes) else _said(value))[0])


def _is_small(value: Any) -> bool:
    return type(value) is int and abs(value) < _INTEGERS


def _said(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a foreign object must not lose the line
        return f"<{type(value).__name__}>"


def encode_entry(entry: LogEntry) -> bytes:
    """One JSON object without a newline in it."""
    return _ENCODER.encode(entry)


def decode_entries(lines: bytes) -> list[LogEntry]:
    """Raises Malformed when a line is not an entry."""
    try:
        return _DECODER.decode_lines(lines)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"a log line is not valid: {error}; send one JSON object a line") from error


def shown_line(source: LogSource, token: int, offset: int, entry: LogEntry) -> LogLine:
    """The line with everything that is known of it."""
    return LogLine(
        kind=source.kind,
        source=source.name,
        run=source.run,
        agent=source.agent,
        level=entry.level,
        time=entry.time,
        text=entry.text,
        fields=entry.fields,
        token=token,
        offset=offset,
    )
