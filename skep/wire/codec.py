"""Encodes and decodes messages: msgpack or JSON, zstd or plain. Both sides use it.

It never trusts a length: a compressed body is decompressed up to the limit and no further,
and a body that does not fit its type is `Malformed`, with the path of the bad field.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import zstandard

from skep.errors import Malformed, TooLarge
from skep.runtime.value_errors import explained

MSGPACK = "application/msgpack"
JSON = "application/json"
ZSTD = "zstd"
#: Minimum size of a message that is compressed.
COMPRESS_FROM = 1024
#: In larger bodies `5.0` is not accepted as `5`: searching for such numbers takes time.
WHOLE_LIMIT = 2**20
#: Up to here every whole number is the same as a float and as an integer.
WHOLE_MAX = 2.0**53
#: Windows up to this size are always accepted; every common compressor stays below it.
SMALLEST_WINDOW = 2**23
#: Maximum bytes of a message that is decoded again to find the wrong value.
EXPLAINED_UP_TO = 2**20

T = TypeVar("T")

_packer = msgspec.msgpack.Encoder()
_jsoner = msgspec.json.Encoder()


def encode(message: Any, content_type: str = MSGPACK) -> bytes:
    """Encode one message as bytes of that type."""
    return _jsoner.encode(message) if content_type == JSON else _packer.encode(message)


def compress(data: bytes) -> tuple[bytes, str]:
    """(bytes, content encoding): compressed if worthwhile, "" otherwise."""
    if len(data) < COMPRESS_FROM:
        return data, ""
    return zstandard.ZstdCompressor(level=1).compress(data), ZSTD


def decompress(data: bytes, encoding: str, limit: int) -> bytes:
    """Undo `compress`; raises TooLarge before more than `limit` bytes are created."""
    if encoding == ZSTD:
        data = _unzstd(data, limit)
    elif encoding not in {"", "identity"}:
        raise Malformed(f"content encoding {encoding!r} is not known; send zstd or none")
    if len(data) > limit:
        raise TooLarge(f"the body exceeds {limit} bytes; send it in smaller parts")
    return data


def _unzstd(data: bytes, limit: int) -> bytes:
    try:
        announced = zstandard.frame_content_size(data)
        if announced > limit:
            raise TooLarge(f"the body is {announced} bytes when unpacked; {limit} is the limit")
        # The sender chooses the window, which is memory: never more than the limit of the body.
        unpacker = zstandard.ZstdDecompressor(max_window_size=_power_of_two(limit))
        if announced >= 0:
            return unpacker.decompress(data, allow_extra_data=False)
        return unpacker.stream_reader(data).read(limit + 1)
    except zstandard.ZstdError as error:
        raise Malformed(f"the body is not valid zstd: {error}") from error


def _power_of_two(limit: int) -> int:
    return max(SMALLEST_WINDOW, 1 << (limit - 1).bit_length())


def _from_json(data: bytes, kind: type[T]) -> T:
    """In JSON `5.0` is an integer too, and some languages write integers so."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error) or len(data) > WHOLE_LIMIT:
            raise
        return msgspec.convert(_whole(msgspec.json.decode(data)), kind)


def _whole(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _whole(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_whole(value) for value in part]
    whole = isinstance(part, float) and part.is_integer() and abs(part) <= WHOLE_MAX
    return int(part) if whole else part


def decode(data: bytes, kind: type[T], content_type: str = MSGPACK) -> T:
    """Decode one message of type `kind`; raises Malformed with the field's path."""
    try:
        if content_type.partition(";")[0].strip().lower() == JSON:
            return _from_json(data, kind)
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.ValidationError as error:
        text = explained(error, _as_sent(data, content_type), kind, "field")
        raise Malformed(f"the body is not valid: {text}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"the body is not valid: {error}") from error


def _as_sent(data: bytes, content_type: str) -> Any:
    """The content of a message that does not match its type, for the error message."""
    if len(data) > EXPLAINED_UP_TO:
        return None
    return decode(data, Any, content_type)
