"""Content codings undone while the bytes arrive, never beyond a limit. Runs on agents.

Every coding works in pieces of 64 KiB at most and hands each to the next, so that a bomb
costs one piece and one window of memory, whatever it would have become. Nothing here
does I/O, and nothing is decoded that the limit has no room for.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import IO, Protocol, cast

import brotli  # type: ignore[import-untyped]  # the package ships no types
import zstandard

PIECE = 64 * 1024
#: More codings on top of each other than anybody has a use for are an attack.
STACK_LIMIT = 3
#: RFC 9659: the largest window that a client must accept for HTTP.
ZSTD_WINDOW = 8 * 2**20

#: zlib's way to say "gzip header, largest window".
GZIP_BITS = zlib.MAX_WBITS + 16
#: RFC 1950: the upper half of the first byte, for a window of 32 KiB.
LARGEST_WINDOW = 7

ACCEPTED = "gzip, deflate, br, zstd"

Sink = Callable[[bytes], None]


class BadEncoding(Exception):
    """The body is not what its Content-Encoding says."""


class OverLimit(Exception):
    """The decoded body is larger than allowed; all that fits has been handed on."""


class Stage(Protocol):
    """One coding: takes encoded bytes, pushes decoded pieces into its sink."""

    def feed(self, data: bytes) -> None:
        """Decode what can be decoded now."""

    def finish(self) -> None:
        """Raises BadEncoding when the end of the stream has not come."""


class _Inflate:
    """gzip (several members, too) and deflate, with or without its zlib wrapper."""

    __slots__ = ("_bits", "_inner", "_name", "_sink")

    def __init__(self, name: str, sink: Sink) -> None:
        self._name = name
        self._sink = sink
        self._bits = GZIP_BITS if name == "gzip" else 0
        self._inner = zlib.decompressobj(GZIP_BITS) if self._bits else None

    def feed(self, data: bytes) -> None:
        while data:
            inner = self._member(data)
            if inner is None:
                return
            try:
                out = inner.decompress(data, PIECE)
            except zlib.error as error:
                raise BadEncoding(f"the body is not {self._name}") from error
            if out:
                self._sink(out)
            data = inner.unused_data if inner.eof else inner.unconsumed_tail
            if not data and len(out) == PIECE:
                self._drain(inner)

    def _member(self, data: bytes) -> zlib._Decompress | None:
        """gzip files may be glued together; anything else behind the end is padding."""
        if self._inner is None:
            return self._open(data)
        if self._inner.eof:
            if self._bits != GZIP_BITS or data[:1] != b"\x1f":
                return None
            self._inner = zlib.decompressobj(GZIP_BITS)
        return self._inner

    def _open(self, data: bytes) -> zlib._Decompress:
        """Servers call both forms `deflate`; a zlib header shows in its first byte."""
        wrapped = data[0] & 0x0F == zlib.DEFLATED and data[0] >> 4 <= LARGEST_WINDOW
        self._bits = zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS
        self._inner = zlib.decompressobj(self._bits)
        return self._inner

    def _drain(self, inner: zlib._Decompress) -> None:
        """A full piece may have left decoded bytes behind although all input is taken."""
        while not inner.eof and (out := inner.decompress(b"", PIECE)):
            self._sink(out)

    def finish(self) -> None:
        if self._inner is not None and not self._inner.eof:
            raise BadEncoding(f"the {self._name} stream ends too early")


class _Brotli:
    __slots__ = ("_inner", "_sink")

    def __init__(self, sink: Sink) -> None:
        self._inner = brotli.Decompressor()
        self._sink = sink

    def feed(self, data: bytes) -> None:
        inner = self._inner
        try:
            while not inner.is_finished():
                out = inner.process(data, output_buffer_limit=PIECE)
                if out:
                    self._sink(out)
                data = b""
                if len(out) < PIECE and inner.can_accept_more_data():
                    return
        except brotli.error as error:
            raise BadEncoding("the body is not br") from error

    def finish(self) -> None:
        if not self._inner.is_finished():
            raise BadEncoding("the br stream ends too early")


class _Zstd:
    """The push side of zstandard: it writes pieces of a fixed size into this object."""

    __slots__ = ("_inner", "_sink")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        engine = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
        self._inner = engine.stream_writer(cast("IO[bytes]", self), write_size=PIECE, closefd=False)

    def write(self, piece: bytes) -> int:
        self._sink(bytes(piece))
        return len(piece)

    def feed(self, data: bytes) -> None:
        try:
            self._inner.write(data)
        except zstandard.ZstdError as error:
            raise BadEncoding("the body is not zstd") from error

    def finish(self) -> None:
        """Between two frames, and only there, bytes that begin no frame are called so."""
        try:
            self._inner.write(b"\xff" * 4)
        except zstandard.ZstdError as error:
            if "unknown frame" in str(error).lower():
                return
        raise BadEncoding("the zstd stream ends too early")


_KNOWN = frozenset({"gzip", "deflate", "br", "zstd"})
_NONE = frozenset({"", "identity"})


def codings(value: str) -> list[str]:
    """The codings of a Content-Encoding header in the order of decoding; [] = none.

    Words that name no known coding (`utf-8`, `none`) count as identity. Raises BadEncoding
    for too many codings.
    """
    wanted = [name for name in reversed(_words(value)) if name in _KNOWN]
    if len(wanted) > STACK_LIMIT:
        raise BadEncoding(f"{len(wanted)} content codings on top of each other")
    return wanted


def unknown_codings(value: str) -> str:
    """A note on words of a Content-Encoding header that name no known coding; "" = none."""
    unknown = [name for name in _words(value) if name not in _KNOWN | _NONE]
    if not unknown:
        return ""
    shown = ", ".join(repr(name[:40]) for name in unknown[:STACK_LIMIT])
    return f"Content-Encoding {shown} is not a known coding; the body is kept as it came"


def _words(value: str) -> list[str]:
    return [name.strip().lower().removeprefix("x-") for name in value.split(",")]


class Decoder:
    """Undoes the codings of one body; `pieces` holds what came out, `limit` bytes at most."""

    __slots__ = ("_fed", "_first", "_room", "_stages", "pieces")

    def __init__(self, names: list[str], limit: int) -> None:
        self.pieces: list[bytes] = []
        self._room = limit
        self._fed = False
        self._stages: list[Stage] = []
        sink: Sink = self._keep
        for name in reversed(names):
            stage = _stage(name, sink)
            self._stages.append(stage)
            sink = stage.feed
        self._first = sink

    def feed(self, data: bytes) -> None:
        """Raises BadEncoding or OverLimit; what fits is in `pieces` all the same."""
        self._fed = True
        self._first(data)

    def finish(self) -> None:
        """Raises BadEncoding when a stream was cut. An empty body has no coding at all."""
        if self._fed:
            for stage in self._stages:
                stage.finish()

    def _keep(self, piece: bytes) -> None:
        self._room -= len(piece)
        if self._room >= 0:
            self.pieces.append(piece)
            return
        self.pieces.append(piece[: self._room])
        self._room = 0
        raise OverLimit


def _stage(name: str, sink: Sink) -> Stage:
    if name == "br":
        return _Brotli(sink)
    if name == "zstd":
        return _Zstd(sink)
    return _Inflate(name, sink)
