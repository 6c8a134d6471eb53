"""Bytes to messages: never more than the limit, never another error than ours. Pure."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import Malformed, TooLarge
from skep.wire import codec
from skep.wire.messages import Heartbeat, LeaseAsk, Register, Report

LIMIT = 10_000
KINDS = [Register, Heartbeat, LeaseAsk, Report, list[int]]


@given(st.binary(max_size=5000))
def test_what_was_compressed_comes_back(data: bytes) -> None:
    packed, encoding = codec.compress(data)
    assert codec.decompress(packed, encoding, LIMIT) == data
    assert (encoding == "zstd") == (len(data) >= codec.COMPRESS_FROM)


@given(st.binary(max_size=300), st.sampled_from(["", "identity", "zstd", "gzip"]))
def test_any_bytes_are_unpacked_within_the_limit_or_refused(data: bytes, encoding: str) -> None:
    """Fault 57."""
    try:
        unpacked = codec.decompress(data, encoding, 100)
    except (Malformed, TooLarge):
        return
    assert len(unpacked) <= 100


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("over", [0, 1, 50 * 2**20])
def test_the_limit_is_exact(announced: bool, over: int) -> None:
    """Fault 57: the last byte that fits does, the next one does not; no memory for more."""
    plain = b"\x00" * (LIMIT + over)
    compressor = zstandard.ZstdCompressor()
    if announced:
        data = compressor.compress(plain)
    else:
        stream = compressor.compressobj()
        data = stream.compress(plain) + stream.flush()
    del plain
    tracemalloc.start()
    if over:
        with pytest.raises(TooLarge):
            codec.decompress(data, "zstd", LIMIT)
    else:
        assert len(codec.decompress(data, "zstd", LIMIT)) == LIMIT
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_window_cannot_take_memory() -> None:
    """Fault 57: a frame may not ask for more memory than a body may have."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = stream.compress(b"x" * 100) + stream.flush()
    with pytest.raises(Malformed):
        codec.decompress(data, "zstd", LIMIT)


def test_a_cut_or_a_longer_frame_is_refused() -> None:
    packed = zstandard.ZstdCompressor().compress(b"x" * 5000)
    for data in (packed[:-1], packed + b"\x00", b"", b"\x28\xb5\x2f\xfd"):
        with pytest.raises(Malformed):
            codec.decompress(data, "zstd", LIMIT)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("content_type", [codec.JSON, codec.MSGPACK])
@given(data=st.binary(max_size=100) | st.text().map(str.encode))
def test_any_bytes_are_a_message_or_malformed(
    kind: type[object], content_type: str, data: bytes
) -> None:
    """Fault 69: nothing else is ever raised, and a message can be encoded again."""
    try:
        message = codec.decode(data, kind, content_type)
    except Malformed:
        return
    assert codec.decode(codec.encode(message, codec.JSON), kind, codec.JSON) == message


def test_the_error_names_the_field() -> None:
    with pytest.raises(Malformed, match=r"want is 'x'; it must be a whole number, at least 1"):
        codec.decode(b'{"agent":"a","want":"x"}', LeaseAsk, codec.JSON)


def test_depth_has_an_end() -> None:
    """Fault 59: nesting is refused, not survived by luck."""
    deep = b'{"agent":"a","blocks":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(Malformed):
        codec.decode(deep, object, codec.JSON)
    with pytest.raises(Malformed):
        codec.decode(b"\x91" * 100_000 + b"\x00", object)


def test_fields_of_a_later_version_are_passed_over() -> None:
    """Fault 44: a center one version ahead is understood."""
    newer = {"agent": "a", "want": 2, "colour": "blue"}
    assert codec.decode(msgspec.msgpack.encode(newer), LeaseAsk) == LeaseAsk("a", 2)


def test_a_content_type_may_carry_a_charset() -> None:
    asked = codec.decode(b'{"agent":"a"}', LeaseAsk, "Application/JSON; charset=utf-8")
    assert asked == LeaseAsk("a")


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        (b'{"agent":"a","want":5.0}', LeaseAsk("a", 5)),
        (b'{"agent":"a","want":5e0,"wait":1.0}', LeaseAsk("a", 5, 1.0)),
        (b'{"agent":"a","want":5.5}', None),
        (b'{"agent":"a","want":1e300}', None),
        (b'{"agent":"a","want":"5"}', None),
        (b'{"agent":"a","want":65.0}', None),
    ],
)
def test_a_whole_number_may_be_written_as_a_float(body: bytes, taken: LeaseAsk | None) -> None:
    """S13: JSON Schema counts 5.0 among the integers, so the center does."""
    if taken is None:
        with pytest.raises(Malformed, match="want is "):
            codec.decode(body, LeaseAsk, codec.JSON)
    else:
        assert codec.decode(body, LeaseAsk, codec.JSON) == taken


def test_large_bodies_are_not_searched_for_whole_floats() -> None:
    """S13: the search is bounded, and the error stays the first one."""
    body = b'{"agent":"a","want":5.0,"kinds":["' + b"x" * codec.WHOLE_LIMIT + b'"]}'
    with pytest.raises(Malformed, match="want is "):
        codec.decode(body, LeaseAsk, codec.JSON)
