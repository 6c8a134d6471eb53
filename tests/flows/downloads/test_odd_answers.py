"""Answers that break HTTP in small ways: what each of them counts as, and what is kept."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from random import Random

import pytest

from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpKind
from skep.downloaders.ports import Fetched
from skep.model.request import URI_LIMIT, Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.testing.grounds.downloaders import LOOPBACK, body_of

OK = b"HTTP/1.1 200 OK\r\n"
PAGE = b"x" * 5000


async def fetched(answer: bytes, *, reset: bool = False, **settings: int) -> Fetched:
    """What a downloader makes of an answer; `reset` breaks the connection after it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if reset:
            await asyncio.sleep(0.1)  # else the kernel drops what was not read yet
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        else:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=LOOPBACK))
    downloader = kind.open("r", RunSettings(**settings))  # type: ignore[arg-type]
    ended: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
    try:
        downloader.start(Work(1, f"http://127.0.0.1:{port}/"), ended.set_result)
        return await asyncio.wait_for(ended, 10)
    finally:
        await downloader.close()
        server.close()


@pytest.mark.parametrize("rest", [b"", b"\x81\x05hello"])
async def test_a_change_of_the_protocol_is_a_failure(rest: bytes) -> None:
    """H4: 101 fails as content, with or without bytes behind it."""
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    outcome = (await fetched(switch + rest)).outcome
    assert (outcome.failure, outcome.status) == ("content", 0)
    assert "101 Switching Protocols" in outcome.detail


@pytest.mark.parametrize("word", [b"utf-8", b"none", b"UTF-8, identity", b"text/html"])
async def test_words_that_name_no_coding_count_as_identity(word: bytes) -> None:
    """H7: the page is done, its body kept, and a note says so."""
    page = await fetched(OK + b"Content-Encoding: " + word + b"\r\nContent-Length: 5\r\n\r\nhello")
    assert (page.outcome.failure, body_of(page)) == ("", b"hello")
    assert "not a known coding" in page.outcome.detail


async def test_an_unknown_word_beside_gzip_does_not_keep_it_from_being_decoded() -> None:
    """H7."""
    page = await fetched(OK + b"Content-Encoding: utf-8, gzip\r\n\r\n" + gzip.compress(PAGE))
    assert (page.outcome.failure, body_of(page)) == ("", PAGE)


@pytest.mark.parametrize(
    "body",
    [b"this is not gzip", gzip.compress(PAGE)[:-9], b"\x1f\x8b" + b"\0" * 500_000],
    ids=["not gzip", "cut short", "no end"],
)
async def test_a_body_that_cannot_be_decoded_is_kept_as_it_came(body: bytes) -> None:
    """H7: class content, every byte of it in the archive."""
    length = str(len(body)).encode()
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: " + length + b"\r\n\r\n"
    page = await fetched(head + body)
    assert (page.outcome.failure, body_of(page)) == ("content", body)


async def test_a_body_without_end_that_decodes_to_nothing_is_bounded() -> None:
    """H7: what is kept beside the decoded body is bounded too."""
    empty = gzip.compress(b"") * 20_000
    page = await fetched(OK + b"Content-Encoding: gzip\r\n\r\n" + empty, body_limit=1000)
    assert page.outcome.failure == "limit"


async def test_a_length_that_no_body_has() -> None:
    """H8: 5 bytes that announce 10^20 - 1 are not done."""
    outcome = (await fetched(OK + b"Content-Length: 99999999999999999999\r\n\r\nhello")).outcome
    assert (outcome.failure, "Content-Length" in outcome.detail) == ("content", True)


async def test_a_reset_inside_the_head_has_no_status() -> None:
    """H8."""
    outcome = (await fetched(OK + b"Content-Le", reset=True)).outcome
    assert (outcome.failure, outcome.status) == ("network", 0)


async def test_a_transfer_coding_that_was_not_asked_for_is_content() -> None:
    """H8: as every answer that is not proper HTTP."""
    coded = OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    assert (await fetched(coded)).outcome.failure == "content"


async def test_an_answer_that_is_cut_off_says_so_in_words() -> None:
    """H8: no number of libcurl's."""
    outcome = (await fetched(OK + b"Content-Length: 10\r\n\r\nhello")).outcome
    assert (outcome.failure, outcome.detail) == ("network", "the response ended early")


async def test_a_redirect_to_a_url_over_the_limit_is_told() -> None:
    """H8, H5: no URL is cut silently."""
    long = b"/" + b"a" * (URI_LIMIT + 1)
    moved = b"HTTP/1.1 302 Found\r\nLocation: " + long + b"\r\nContent-Length: 0\r\n\r\n"
    outcome = (await fetched(moved)).outcome
    assert (outcome.failure, outcome.status) == ("content", 302)
    assert f"the limit is {URI_LIMIT}" in outcome.detail
