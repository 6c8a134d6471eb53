"""Header lines of an HTTP answer as they were received, split only when they are read. Pure.

Most downloads need only the few headers that a search in the bytes finds, and a well-formed head
can be archived without splitting it. Splitting never changes the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import overload

#: One header; a continuation line, or a line that is not a header, is left out.
_FIELD = re.compile(r"^([^\s:][^:\r\n]*):[ \t]*([^\r\n]*)", re.MULTILINE)
#: The start of a line that every reader of WARC files splits in the same way.
_LINE_START = re.compile(rb"\n[!-9;-~]+: ")
#: Headers that describe the bytes on the wire.
_LENGTH, _CONTENT_CODING = b"\ncontent-length: ", b"\ncontent-encoding"
_TRANSFER_CODING = b"\ntransfer-encoding"


class ReceivedHeaders(Sequence[tuple[str, str]]):
    """Names and values, in order. `lower` is everything in lower case, after a line break."""

    __slots__ = ("_fields", "_received", "lower")

    def __init__(self, received: bytes) -> None:
        """`received`: all lines after the status line, as received."""
        self._received = received
        self.lower = (b"\n" + received).lower()
        self._fields: list[tuple[str, str]] | None = None

    def lines_for(self, length: int, *, encoded: bool) -> bytes | None:
        """All lines with the empty one, if they match a body of `length` bytes and can be archived
        as they are; `encoded` says whether the body still has its Content-Encoding."""
        lower = self.lower
        start = lower.find(_LENGTH)
        end = start + len(_LENGTH)
        fits = (
            start >= 0
            and lower[end : lower.find(b"\r", end)] == b"%d" % length
            and lower.find(_LENGTH[:-2], end) < 0
            and (encoded or _CONTENT_CODING not in lower)
            and _TRANSFER_CODING not in lower
        )
        return self._received if fits and self._is_well_formed() else None

    def _is_well_formed(self) -> bool:
        """Whether each line has a name, a value and a correct end, and the last line is empty."""
        lower = self.lower
        lines = lower.count(b"\n") - 2
        return (
            lower.endswith(b"\r\n\r\n")
            and lower.count(b"\r") == lines + 1
            and lower.count(b"\r\n") == lines + 1
            and len(_LINE_START.findall(lower)) == lines
            and b"\0" not in lower
            and b"\t" not in lower
        )

    def find(self, name: bytes) -> str | None:
        """All values of a header, joined by commas; `name` is lower case."""
        mark = b"\n%s:" % name
        start = self.lower.find(mark)
        if start < 0:
            return None
        if self._fields is None and self.lower.find(mark, start + 1) < 0:
            return self._value(start + len(mark) - 1)
        wanted = name.decode("latin-1")
        values = [value for key, value in self.fields if key.lower() == wanted]
        return ", ".join(values) if values else None

    def _value(self, start: int) -> str | None:
        """The value of the header whose colon is before `start`, unless it is a trailer."""
        received = self._received
        if 0 <= received.find(b"\r\n\r\n") < start:
            return None
        line = received[start:].partition(b"\n")[0]
        return line.partition(b"\r")[0].lstrip(b" \t").decode("latin-1")

    @property
    def fields(self) -> list[tuple[str, str]]:
        if self._fields is None:
            text = self._received.decode("latin-1")
            end = text.find("\r\n\r\n")
            self._fields = _FIELD.findall(text, 0, end if end >= 0 else len(text))
        return self._fields

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...

    def __getitem__(self, index: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        return self.fields[index]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.fields == list(other)

    def __hash__(self) -> int:
        return hash(self._received)
