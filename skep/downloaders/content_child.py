"""The child process that applies content rules: pages on stdin, WARC frames on stdout.

Started by `content_children`, one or two per run. A page that needs too much time or memory ends
only this process: the kernel's timer kills it, even during a match. It opens no file and no
connection, and ends when its stdin is closed.
"""

from __future__ import annotations

import resource
import signal
import sys
from hashlib import sha256
from random import Random
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from skep.archive.frames import Cut, Exchange, Extract, FrameMaker
from skep.downloaders.content_rules import BadRules, CutContent, Cutting, OverSize, Unmatched
from skep.model.content_rules import ContentRules
from skep.model.failures.failure_class import FailureClass

#: Limit of the address space: enough for a large page, its tree and the results.
MEMORY = 2**30
NO_MEMORY = "the content rules need too much memory"
_LENGTH_BYTES = 8


class ContentSetup(msgspec.Struct, array_like=True):
    """The first message, which applies to all pages."""

    rules: ContentRules
    #: Seed for record ids.
    seed: int


class ContentPage(msgspec.Struct, array_like=True):
    """One page, with the fields of `Exchange`."""

    uri: str
    method: str
    request_headers: list[tuple[str, str]]
    request_body: bytes
    status: int
    reason: str
    response_headers: list[tuple[str, str]]
    body: bytes
    address: str
    cut: Cut | None
    #: Seconds since the epoch.
    now: float
    #: It failed or has no content: only the size limit applies.
    is_plain: bool


class Answer(msgspec.Struct, array_like=True):
    """The frames of a page; `failure` is "" if the rules could be applied."""

    frames: bytes = b""
    failure: str = ""
    detail: str = ""


class GivenClock:
    """A clock that shows the time that was set last."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError("nothing sleeps here")


class ContentWorker:
    """Applies the rules to pages."""

    def __init__(self, orders: ContentSetup) -> None:
        """Raises BadRules."""
        self._cutting = Cutting(orders.rules)
        self._clock = GivenClock()
        self._maker = FrameMaker(self._clock, Random(orders.seed))  # noqa: S311 - record ids, not secrets

    def answer(self, page: ContentPage) -> Answer:
        self._clock.time = page.now
        kept, failure, detail = self._cut(page)
        return Answer(self._maker.exchange_frames(_exchange(page, kept)), failure, detail)

    def _cut(self, page: ContentPage) -> tuple[CutContent, str, str]:
        kind = _content_type(page)
        if page.is_plain:
            return self._cutting.limited(page.body, kind), "", ""
        try:
            return self._cutting.cut(page.body, kind), "", ""
        except (Unmatched, BadRules) as error:
            failure, detail = FailureClass.CONTENT, str(error)
        except OverSize as error:
            failure, detail = FailureClass.LIMIT, str(error)
        except MemoryError:
            failure, detail = FailureClass.LIMIT, NO_MEMORY
        # Stored unchanged, so that users can find the cause.
        return self._cutting.limited(page.body, kind), failure, detail


def _content_type(page: ContentPage) -> str:
    headers = page.response_headers
    return next((value for name, value in headers if name.lower() == "content-type"), "")


def _exchange(page: ContentPage, kept: CutContent) -> Exchange:
    whole = Exchange(
        page.uri, page.method, page.request_headers, page.request_body, page.status,
        page.reason, page.response_headers, page.body, page.address, page.cut,
    )  # fmt: skip
    if not kept.said:
        return whole
    # The length of a download that stopped early is unknown.
    length, digest = (-1, "") if page.cut else (len(page.body), _digest(page.body))
    return replace(
        whole,
        body=kept.body,
        response_headers=_retyped(page.response_headers, kept.content_type),
        cut=page.cut or (Cut.LENGTH if kept.is_prefix else Cut.UNSPECIFIED),
        extract=Extract(kept.said, length, digest),
    )


def _digest(body: bytes) -> str:
    return f"sha256:{sha256(body).hexdigest()}"


def _retyped(headers: list[tuple[str, str]], content_type: str) -> list[tuple[str, str]]:
    """The headers with the type of the result; the server's type gets another name."""
    kinds = [value for name, value in headers if name.lower() == "content-type"]
    if kinds[:1] == [content_type] or not content_type:
        return headers
    others = [pair for pair in headers if pair[0].lower() != "content-type"]
    old = [("X-Archive-Orig-Content-Type", value) for value in kinds]
    return [*others, *old, ("Content-Type", content_type)]


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The default action of the signal kills the process, even during a match or a parse.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pages, out = sys.stdin.buffer, sys.stdout.buffer
    first = _read(pages)
    if first is not None:
        _serve(msgspec.msgpack.decode(first, type=ContentSetup), pages, out)


def _serve(orders: ContentSetup, pages: BinaryIO, out: BinaryIO) -> None:
    bench = ContentWorker(orders)
    decode = msgspec.msgpack.Decoder(ContentPage).decode
    while (data := _read(pages)) is not None:
        signal.setitimer(signal.ITIMER_PROF, orders.rules.seconds)
        try:
            answer = bench.answer(decode(data))
        except MemoryError:
            answer = Answer(b"", FailureClass.LIMIT, NO_MEMORY)
        except Exception as error:  # noqa: BLE001 - every page gets its answer
            answer = Answer(b"", FailureClass.CODE, f"the content rules failed: {error!r}")
        signal.setitimer(signal.ITIMER_PROF, 0)
        encoded = msgspec.msgpack.encode(answer)
        out.write(len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded)
        out.flush()


def _read(pages: BinaryIO) -> bytes | None:
    size = pages.read(_LENGTH_BYTES)
    return pages.read(int.from_bytes(size, "big")) if len(size) == _LENGTH_BYTES else None


if __name__ == "__main__":
    main()
