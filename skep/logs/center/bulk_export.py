"""Sends log lines on to Elasticsearch or OpenSearch by their bulk API. Runs on centers.

The id of a document is that of the line, so lines that are sent twice are one document. A server
that is unavailable or busy raises Unavailable: the caller sends the same lines again. A document
that the server refuses is counted and left out; the stored line stays. It follows no redirect.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from base64 import b64encode
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from skep.errors import ConfigurationError, Unavailable
from skep.model.logs import LogLine
from skep.runtime.lazy_certificates import aiohttp

log = logging.getLogger(__name__)

#: Maximum lines of one call; a line has at most 64 KiB.
BATCH = 200
SECONDS = 30.0
_GOOD, _TOO_MANY, _SERVER_ERRORS = range(200, 300), 429, 500
#: Bytes of an answer that are read.
_ANSWER = 16 * 2**20


class _Document(msgspec.Struct):
    """Nested fields are one text, so that their names do not grow the mapping of the index."""

    time: int = msgspec.field(name="@timestamp")
    level: int
    kind: str
    source: str
    run: str
    agent: str
    message: str
    fields: str
    token: int
    offset: int


class _Result(msgspec.Struct):
    status: int = 0
    error: Any = None


class _Answer(msgspec.Struct):
    errors: bool = False
    items: list[dict[str, _Result]] = []


class BulkExport:
    """One index. `url` is `http://user:password@host:9200/index`."""

    def __init__(self, url: str) -> None:
        """Raises ConfigurationError for a URL without an index."""
        parts = urlsplit(url)
        self._index = parts.path.strip("/")
        web = parts.scheme in {"http", "https"} and parts.hostname
        if not web or not self._index or "/" in self._index:
            raise ConfigurationError(_wrong(parts.hostname))
        place = parts.netloc.rpartition("@")[2]
        self._url = urlunsplit((parts.scheme, place, f"/{self._index}/_bulk", "", ""))
        self._shown = f"{parts.scheme}://{place}/{self._index}"
        self._login = _login(parts.username, parts.password)
        #: Lines that the server refused, since the start.
        self.refused = 0

    async def send(self, lines: Sequence[LogLine]) -> None:
        """Raises Unavailable when they must be sent again."""
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, headers=self._login) as session:
            for start in range(0, len(lines), BATCH):
                await self._post(session, lines[start : start + BATCH])

    async def _post(self, session: aiohttp.ClientSession, lines: Sequence[LogLine]) -> None:
        body = await asyncio.to_thread(bulk_body, lines)
        headers = {"Content-Type": "application/x-ndjson"}
        try:
            async with session.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as response:
                content = await response.content.read(_ANSWER)
                self._judge(response.status, content)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{self._shown}: {error or type(error).__name__}") from error

    def _judge(self, status: int, content: bytes) -> None:
        if status not in _GOOD:
            said = content[:200].decode(errors="replace")
            raise Unavailable(f"{self._shown} answered {status}: {said}")
        try:
            answer = msgspec.json.decode(content, type=_Answer)
        except msgspec.MsgspecError as error:
            raise Unavailable(f"{self._shown} is not a bulk API: {error}") from error
        results = [one for item in answer.items for one in item.values()]
        if any(one.status == _TOO_MANY or one.status >= _SERVER_ERRORS for one in results):
            raise Unavailable(f"{self._shown} is busy")
        bad = [one for one in results if one.status not in _GOOD]
        if bad:
            self.refused += len(bad)
            log.warning("%s refused %d lines: %s", self._shown, len(bad), str(bad[0].error)[:300])


def bulk_body(lines: Sequence[LogLine]) -> bytes:
    """An action and a document for each line."""
    parts: list[bytes] = []
    for line in lines:
        parts += [msgspec.json.encode({"index": {"_id": document_id(line)}}), _document(line)]
    return b"\n".join(parts) + b"\n"


def document_id(line: LogLine) -> str:
    """The same for the same line, wherever it is sent from."""
    key = msgspec.json.encode(
        [line.kind, line.source, line.run, line.agent, line.token, line.offset]
    )
    return hashlib.blake2b(key, digest_size=16).hexdigest()


def _document(line: LogLine) -> bytes:
    fields = msgspec.json.encode(line.fields) if line.fields else b""
    return msgspec.json.encode(
        _Document(
            round(line.time * 1000),
            line.level,
            str(line.kind),
            line.source,
            line.run,
            line.agent,
            line.text,
            fields.decode(),
            line.token,
            line.offset,
        )
    )


def _login(user: str | None, password: str | None) -> dict[str, str]:
    if not user:
        return {}
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return {"Authorization": f"Basic {b64encode(pair).decode()}"}


def _wrong(host: str | None) -> str:
    return (
        f"logs.forward names no index of Elasticsearch or OpenSearch (host {host!r}); "
        "write http://host:9200/INDEX"
    )
