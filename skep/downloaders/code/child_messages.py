"""The agent's side of the line to a child. Pure.

User code shares a process with whoever speaks at the other end, so nothing that comes is
believed: lengths are capped before a byte is kept, messages must have the right shape, and
their ids are checked by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.downloaders.code.inside.talk import Ask, Load, Skip

#: Room for everything beside the body of an answer.
OVERHEAD = 256 * 1024
HEADERS_LIMIT = 100

_encode = msgspec.msgpack.Encoder().encode

Text = Annotated[str, Meta(max_length=16 * 1024)]


class Breach(Exception):
    """The other end said something that our own child program never says."""


class Hello(msgspec.Struct, array_like=True, tag="hello", frozen=True):
    """The code is loaded. `together`: it runs several requests side by side."""

    together: bool


class Bad(msgspec.Struct, array_like=True, tag="bad", frozen=True):
    """The code could not be loaded."""

    detail: Text
    messages: Text


class End(msgspec.Struct, array_like=True, tag="end", frozen=True):
    """What became of one request."""

    id: int
    failure: Annotated[str, Meta(pattern="^(|code|limit|timeout)$")]
    detail: Text
    messages: Text
    elapsed_us: Annotated[int, Meta(ge=0, le=10**12)]
    status: Annotated[int, Meta(ge=0, le=999)]
    headers: Annotated[list[tuple[Text, Text]], Meta(max_length=HEADERS_LIMIT)]
    body: bytes
    #: The child ends now, and does nothing of what else it was sent.
    leaving: bool


class Batch(msgspec.Struct, array_like=True, tag="batch", frozen=True):
    """What a generator yielded: URIs, lines of JSON, or fields of requests."""

    items: Annotated[list[str | dict[str, Any]], Meta(max_length=10_000)]
    messages: Text


class Over(msgspec.Struct, array_like=True, tag="over", frozen=True):
    """A generator has ended; "" when it went well."""

    failure: Annotated[str, Meta(pattern="^(|code|limit|timeout)$")]
    detail: Text
    messages: Text


Message = Hello | Bad | End
Generated = Batch | Over


def written(*messages: Ask | Skip | Load) -> bytes:
    """Messages for a child, as one piece."""
    parts = [_encode(message) for message in messages]
    return b"".join(piece for part in parts for piece in (len(part).to_bytes(4, "big"), part))


class Reader:
    """Cuts what a child sends into messages; no more than one of them is ever kept."""

    def __init__(self, limit: int, messages: Any = Message) -> None:
        self._limit = limit + OVERHEAD
        self._buffer = bytearray()
        self._decode = msgspec.msgpack.Decoder(messages).decode

    def feed(self, data: bytes) -> Iterator[Any]:
        """Raises Breach."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= 4:  # noqa: PLR2004 - the length's own size
            size = int.from_bytes(buffer[start : start + 4], "big")
            if size > self._limit:
                raise Breach(f"a message of {size} bytes; {self._limit} is the limit")
            end = start + 4 + size
            if end > len(buffer):
                break
            yield self._message(bytes(buffer[start + 4 : end]))
            start = end
        del buffer[:start]

    def _message(self, data: bytes) -> Any:
        try:
            return self._decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Breach(f"a message that is none: {error}") from error
