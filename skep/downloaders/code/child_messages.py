"""The agent's side of the channel to a child. Pure.

User code shares the process at the other end, so nothing that arrives is trusted: lengths are
checked before bytes are stored, messages must have the right shape, and the caller checks their
ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.downloaders.code.inside.talk import Ask, Load, Skip

#: Bytes in addition to the body of an answer.
OVERHEAD = 256 * 1024
HEADERS_LIMIT = 100

_encode = msgspec.msgpack.Encoder().encode

Text = Annotated[str, Meta(max_length=16 * 1024)]


class Breach(Exception):
    """The child sent something that our own child program never sends."""


class Hello(msgspec.Struct, array_like=True, tag="hello", frozen=True):
    """The code is loaded. `together`: it runs several requests concurrently."""

    together: bool


class Bad(msgspec.Struct, array_like=True, tag="bad", frozen=True):
    """The code could not be loaded."""

    detail: Text
    messages: Text


class End(msgspec.Struct, array_like=True, tag="end", frozen=True):
    """The result of one request."""

    id: int
    failure: Annotated[str, Meta(pattern="^(|code|limit|timeout)$")]
    detail: Text
    messages: Text
    elapsed_us: Annotated[int, Meta(ge=0, le=10**12)]
    status: Annotated[int, Meta(ge=0, le=999)]
    headers: Annotated[list[tuple[Text, Text]], Meta(max_length=HEADERS_LIMIT)]
    body: bytes
    #: The child ends now and does not process the other requests that it has.
    leaving: bool


class Batch(msgspec.Struct, array_like=True, tag="batch", frozen=True):
    """Output of a generator: URIs, lines of JSON, or fields of requests."""

    items: Annotated[list[str | dict[str, Any]], Meta(max_length=10_000)]
    messages: Text


class Over(msgspec.Struct, array_like=True, tag="over", frozen=True):
    """A generator has ended; `failure` is "" on success."""

    failure: Annotated[str, Meta(pattern="^(|code|limit|timeout)$")]
    detail: Text
    messages: Text


Message = Hello | Bad | End
Generated = Batch | Over


def written(*messages: Ask | Skip | Load) -> bytes:
    """Messages for a child, as one byte string."""
    parts = [_encode(message) for message in messages]
    return b"".join(piece for part in parts for piece in (len(part).to_bytes(4, "big"), part))


class Reader:
    """Splits the output of a child into messages; it buffers at most one."""

    def __init__(self, limit: int, messages: Any = Message) -> None:
        self._limit = limit + OVERHEAD
        self._buffer = bytearray()
        self._decode = msgspec.msgpack.Decoder(messages).decode

    def feed(self, data: bytes) -> Iterator[Any]:
        """Raises Breach."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= 4:  # noqa: PLR2004 - the size of the length
            size = int.from_bytes(buffer[start : start + 4], "big")
            if size > self._limit:
                raise Breach(f"a message of {size} bytes exceeds the limit of {self._limit}")
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
            raise Breach(f"an invalid message: {error}") from error
