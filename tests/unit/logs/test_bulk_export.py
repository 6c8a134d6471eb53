"""Lines on their way to Elasticsearch or OpenSearch: none lost, none twice (R7)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from skep.errors import ConfigurationError, Unavailable
from skep.logs.center.bulk_export import BulkExport
from skep.logs.center.exporting import LogExporter
from skep.logs.center.intake import IntakeRate, LogIntake
from skep.logs.center.search import LogSearch
from skep.logs.line_format import encode_entry, make_entry
from skep.model.logs import LogBatch, LogSource, LogSourceKind
from skep.runtime.clock import SystemClock
from skep.store.ports.logs import LogPieces

SOURCE = LogSource(LogSourceKind.AGENT, "a1", "", "a1")
CLOCK = SystemClock()


class BulkServer:
    """Takes documents as the bulk API does; a test says what it answers."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.status = 200
        #: Statuses of documents, by message.
        self.bad: dict[str, int] = {}
        self.logins: set[str] = set()
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.logins.add(request.headers.get("Authorization", ""))
        if self.status != 200:
            return web.Response(status=self.status, text="no")
        lines = [json.loads(line) for line in (await request.text()).splitlines()]
        items = []
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            status = self.bad.get(document["message"], 201)
            if status == 201:
                self.documents[action["index"]["_id"]] = document
            items.append({"index": {"status": status, "error": {"reason": "mapping"}}})
        return web.json_response({"errors": bool(self.bad), "items": items})


@pytest.fixture
async def server() -> AsyncIterator[BulkServer]:
    double = BulkServer()
    app = web.Application()
    app.router.add_post("/skep/_bulk", double.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    double.url = f"http://anna:secret@127.0.0.1:{port}/skep"
    yield double
    await runner.cleanup()


async def add(pieces: LogPieces, first: int, *texts: str) -> None:
    made = [make_entry(1000.0 + n, 20, text, {"n": n}) for n, text in enumerate(texts)]
    lines = [encode_entry(entry) for entry in made]
    intake = LogIntake(pieces, CLOCK, IntakeRate())
    await intake.take(LogBatch(SOURCE, 1, first, b"\n".join(lines)))


async def exporter_of(pieces: LogPieces, server: BulkServer, folder: Path) -> LogExporter:
    made = LogExporter(LogSearch(pieces, CLOCK), BulkExport(server.url).send, folder / "position")
    await made.open()
    return made


async def test_lines_arrive_with_everything_and_once(
    log_pieces: LogPieces, server: BulkServer, tmp_path: Path
) -> None:
    """R7: a position that was lost sends lines again; they are the same documents."""
    exporter = await exporter_of(log_pieces, server, tmp_path)
    await add(log_pieces, 0, *(f"line {n}" for n in range(450)))
    assert await exporter.step() == 450
    (tmp_path / "position").write_text("0\n")
    again = await exporter_of(log_pieces, server, tmp_path)
    assert await again.step() == 450
    assert len(server.documents) == 450
    found = next(one for one in server.documents.values() if one["message"] == "line 7")
    assert (found["@timestamp"], found["agent"], found["fields"]) == (1_007_000, "a1", '{"n":7}')
    assert server.logins == {"Basic YW5uYTpzZWNyZXQ="}


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_a_server_that_is_away_gets_the_lines_later(
    status: int, log_pieces: LogPieces, server: BulkServer, tmp_path: Path
) -> None:
    exporter = await exporter_of(log_pieces, server, tmp_path)
    await add(log_pieces, 0, "a", "b")
    server.status = status
    with pytest.raises(Unavailable, match=str(status)):
        await exporter.step()
    server.status = 200
    assert await exporter.step() == 2
    assert len(server.documents) == 2


async def test_busy_for_one_document_sends_all_again_and_a_refused_one_is_left_out(
    log_pieces: LogPieces, server: BulkServer, tmp_path: Path
) -> None:
    exporter = await exporter_of(log_pieces, server, tmp_path)
    await add(log_pieces, 0, "a", "b", "c")
    server.bad = {"b": 429}
    with pytest.raises(Unavailable, match="busy"):
        await exporter.step()
    server.bad = {"b": 400}
    assert await exporter.step() == 3
    assert sorted(one["message"] for one in server.documents.values()) == ["a", "c"]


async def test_nothing_listens(log_pieces: LogPieces, tmp_path: Path) -> None:
    export = BulkExport("http://user:hidden@127.0.0.1:9/skep")
    exporter = LogExporter(LogSearch(log_pieces, CLOCK), export.send, tmp_path / "position")
    await exporter.open()
    await add(log_pieces, 0, "a")
    with pytest.raises(Unavailable) as raised:
        await exporter.step()
    assert "hidden" not in raised.value.detail


@pytest.mark.parametrize("url", ["http://host:9200", "ftp://host/x", "host/x", "http://host/a/b"])
def test_an_address_without_an_index_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"logs\.forward"):
        BulkExport(url)
