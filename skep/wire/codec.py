"""Bytes to messages and back: msgpack or JSON, zstd or plain. Both sides use it.

It never trusts a length: a compressed body is decompressed up to the limit and no further,
and a body that does not fit its type is `Malformed`, with the path of the bad field.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import zstandard

from skep.errors import Malformed, TooLarge

MSGPACK = "application/msgpack"
JSON = "application/json"
ZSTD = "zstd"
#: Smaller messages are not worth the compressor's time.
COMPRESS_FROM = 1024

T = TypeVar("T")

_packer = msgspec.msgpack.Encoder()
_jsoner = msgspec.json.Encoder()


def encode(message: Any, content_type: str = MSGPACK) -> bytes:
    """One message as bytes of that type."""
    return _jsoner.encode(message) if content_type == JSON else _packer.encode(message)


def compress(data: bytes) -> tuple[bytes, str]:
    """(bytes, content encoding): compressed where that pays, "" otherwise."""
    if len(data) < COMPRESS_FROM:
        return data, ""
    return zstandard.ZstdCompressor(level=1).compress(data), ZSTD


def decompress(data: bytes, encoding: str, limit: int) -> bytes:
    """Undo `compress`; raises TooLarge before more than `limit` bytes were made."""
    if encoding == ZSTD:
        data = _unzstd(data, limit)
    elif encoding not in {"", "identity"}:
        raise Malformed(f"content encoding {encoding!r} is not known; send zstd or none")
    if len(data) > limit:
        raise TooLarge(f"the body is over {limit} bytes; send it in smaller parts")
    return data


def _unzstd(data: bytes, limit: int) -> bytes:
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        return reader.read(limit + 1)
    except zstandard.ZstdError as error:
        raise Malformed(f"the body is not zstd: {error}") from error


def decode(data: bytes, kind: type[T], content_type: str = MSGPACK) -> T:
    """Bytes as one message of type `kind`; raises Malformed with the field's path."""
    try:
        if content_type.partition(";")[0].strip().lower() == JSON:
            return msgspec.json.decode(data, type=kind)
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"the body is not a valid {kind.__name__}: {error}") from error
