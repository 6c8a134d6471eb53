"""Content codings: every coding, any cut into chunks, never beyond the limit."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import brotli  # type: ignore[import-untyped]  # the package ships no types
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from skep.archive.content_decoding import (
    PIECE,
    BadEncoding,
    Decoder,
    OverLimit,
    codings,
    unknown_codings,
)
from skep.testing.grounds.downloaders import raw_deflate

TEXT = b"once upon a time " * 12_000


def two_members(data: bytes) -> bytes:
    return gzip.compress(data[:100]) + gzip.compress(data[100:])


def two_frames(data: bytes) -> bytes:
    engine = zstandard.ZstdCompressor()
    return engine.compress(data[:100]) + engine.compress(data[100:])


CODERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", two_members),
    ("deflate", zlib.compress),
    ("Deflate", raw_deflate),
    ("br", brotli.compress),
    ("zstd", zstandard.ZstdCompressor().compress),
    ("zstd", zstandard.ZstdCompressor(write_checksum=True).compress),
    ("zstd", two_frames),
    ("identity, gzip", gzip.compress),
]


def decode(value: str, encoded: bytes, limit: int = 2**20, step: int = 16_384) -> bytes:
    decoder = Decoder(codings(value), limit)
    for start in range(0, len(encoded), step):
        decoder.feed(encoded[start : start + step])
    decoder.finish()
    return b"".join(decoder.pieces)


@pytest.mark.parametrize("step", [1, 7, 16_384])
@pytest.mark.parametrize(("name", "encode"), CODERS)
def test_every_coding_comes_back(name: str, encode: Callable[[bytes], bytes], step: int) -> None:
    assert decode(name, encode(TEXT), step=step) == TEXT


@pytest.mark.parametrize(("name", "encode"), CODERS)
def test_a_cut_stream_is_noticed(name: str, encode: Callable[[bytes], bytes]) -> None:
    with pytest.raises(BadEncoding, match="incomplete"):
        decode(name, encode(TEXT)[:-2])


@pytest.mark.parametrize("name", ["gzip", "br", "zstd", "deflate"])
def test_garbage_is_refused(name: str) -> None:
    with pytest.raises(BadEncoding):
        decode(name, b"<html>this was never compressed</html>" * 50)


@pytest.mark.parametrize("name", ["gzip", "br", "zstd", "deflate"])
def test_an_empty_body_needs_no_coding(name: str) -> None:
    assert decode(name, b"") == b""


def test_stacked_codings_are_undone_from_the_outside() -> None:
    encoded = zstandard.ZstdCompressor().compress(brotli.compress(gzip.compress(TEXT)))
    assert decode("gzip, br, zstd", encoded) == TEXT


def test_too_many_codings_are_refused() -> None:
    with pytest.raises(BadEncoding):
        codings("gzip, gzip, gzip, gzip")


@pytest.mark.parametrize("value", ["compress", "rot13", "utf-8", "none, identity"])
def test_unknown_codings_count_as_identity_with_a_note(value: str) -> None:
    """H7."""
    assert codings(value) == []
    assert "is not a known coding" in unknown_codings(value)
    assert unknown_codings("gzip, identity, x-gzip") == ""


@pytest.mark.parametrize(("name", "encode"), CODERS)
def test_no_more_than_the_limit_is_ever_held(name: str, encode: Callable[[bytes], bytes]) -> None:
    """Fault 57: what fits is kept, the first byte too many ends it."""
    limit = PIECE + 123
    decoder = Decoder(codings(name), limit)
    with pytest.raises(OverLimit):
        decoder.feed(encode(TEXT))
    assert b"".join(decoder.pieces) == TEXT[:limit]


@given(st.binary(max_size=3000), st.sampled_from(CODERS), st.integers(1, 500))
def test_any_bytes_in_any_chunks(
    data: bytes, coder: tuple[str, Callable[[bytes], bytes]], step: int
) -> None:
    name, encode = coder
    assert decode(name, encode(data), limit=max(len(data), 1), step=step) == data


@given(st.binary(max_size=2000), st.sampled_from(["gzip", "deflate", "br", "zstd"]))
def test_any_garbage_ends_in_a_known_error(data: bytes, name: str) -> None:
    decoder = Decoder(codings(name), 10_000)
    try:
        decoder.feed(data)
        decoder.finish()
    except (BadEncoding, OverLimit):
        pass
    assert sum(map(len, decoder.pieces)) <= 10_000
