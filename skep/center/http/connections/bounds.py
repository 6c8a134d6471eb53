"""The limits of one center, from its settings, and the answers to connections that exceed one.

A refusal is encoded here as raw HTTP: no request exists yet that an endpoint could answer.
"""

from __future__ import annotations

import resource
from http import HTTPStatus

import msgspec

from skep.errors import HeadTooLarge, Malformed, SkepError, TooManyConnections, TooSlow, UrlTooLong
from skep.settings import CenterSettings
from skep.wire.problem import PROBLEM, problem_of

#: Files that a center needs in addition to its connections: database, archive, segments,
#: children.
RESERVED_FILES = 200
#: Requests that a connection may send ahead of their answers.
PIPELINED = 16


class Bounds(msgspec.Struct, frozen=True):
    """What a connection may send and how long it may take, and how many there may be."""

    head_bytes: int
    headers: int
    url_bytes: int
    head_seconds: float
    body_seconds: float
    body_rate: int
    connections: int
    anonymous: int


def bounds_of(settings: CenterSettings) -> Bounds:
    """The settings, limited to the number of files that this process may open."""
    return Bounds(
        head_bytes=settings.head_bytes,
        headers=settings.headers_limit,
        url_bytes=settings.url_bytes,
        head_seconds=settings.head_seconds,
        body_seconds=settings.body_seconds,
        body_rate=settings.body_rate,
        connections=min(settings.connections, _files()),
        anonymous=settings.anonymous_connections,
    )


def _files() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 2**31
    return max(limit - RESERVED_FILES, limit // 2)


class Refusal:
    """Why a connection is closed: the label of the metric, and the bytes of the answer."""

    def __init__(self, reason: str, error: SkepError) -> None:
        self.reason = reason
        self.answer = _answer(error)


def _answer(error: SkepError) -> bytes:
    body = msgspec.json.encode(problem_of(error))
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        f"content-type: {PROBLEM}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


class Refusals:
    """One refusal of each kind, created once: a refusal must cost less than what it refuses."""

    def __init__(self, bounds: Bounds) -> None:
        most = f"{bounds.head_bytes} bytes or {bounds.headers} headers"
        self.head = Refusal("head_size", HeadTooLarge(f"the head exceeds {most}"))
        self.url = Refusal("url_size", UrlTooLong(f"the URL exceeds {bounds.url_bytes} bytes"))
        self.slow_head = Refusal(
            "slow_head", TooSlow(f"the head was not complete after {bounds.head_seconds:g} s")
        )
        self.slow_body = Refusal(
            "slow_body",
            TooSlow(
                f"the body arrived too slowly; the limit is {bounds.body_seconds:g} s plus one "
                f"second for every {bounds.body_rate} bytes"
            ),
        )
        self.full = Refusal(
            "full",
            TooManyConnections(f"the limit of {bounds.connections} connections is reached"),
        )
        self.garbage = Refusal("not_http", Malformed("this is not an HTTP/1.1 request"))
        self.pipelined = Refusal(
            "pipelined", Malformed(f"send at most {PIPELINED} requests ahead of their answers")
        )
