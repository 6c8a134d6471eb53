"""Finds the ends of zstd frames from their block headers, without unpacking them.

Used by centers to read records and to find incomplete last records. It follows lengths only: it
never allocates what a frame announces, and does not verify the checksum of the contents.
"""

from __future__ import annotations

import zstandard

from skep.errors import Malformed

_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_HEADER = 3
_CHECKSUM = 4
_RLE, _RESERVED = 1, 3
#: No frame header is longer than this.
_HEADER_MAX = 18


def content_size(data: bytes, start: int = 0) -> int:
    """Unpacked bytes that the frame at `start` announces; raises Malformed if it has no size."""
    size = _parameters(data, start).content_size
    if size in {zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR}:
        raise Malformed("a zstd frame of the archive does not announce its size")
    return size


def frame_end(data: bytes, start: int = 0) -> int:
    """The offset after the frame at `start`; raises Malformed when it is incomplete."""
    parameters = _parameters(data, start)
    position = start + zstandard.frame_header_size(data[start : start + _HEADER_MAX])
    last = False
    while not last:
        header = int.from_bytes(data[position : position + _BLOCK_HEADER], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        position += _BLOCK_HEADER + (1 if kind == _RLE else size)
        if kind == _RESERVED or position > len(data):
            raise Malformed("a zstd frame of the archive is incomplete")
    end = position + (_CHECKSUM if parameters.has_checksum else 0)
    if end > len(data):
        raise Malformed("a zstd frame of the archive is incomplete")
    return end


def _parameters(data: bytes, start: int) -> zstandard.FrameParameters:
    if data[start : start + len(_MAGIC)] != _MAGIC:
        raise Malformed("the archive has no zstd frame at this location")
    try:
        return zstandard.get_frame_parameters(data[start : start + _HEADER_MAX])
    except zstandard.ZstdError as error:
        raise Malformed(f"a zstd frame of the archive is damaged: {error}") from error
