"""Sinks without servers: URLs, options, files, cells, and what is sent to MongoDB.

MongoDB cannot be had where these tests run: only the operations that its sink makes are
checked, and that a server which is not there is Unavailable.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from pymongo import ReplaceOne, UpdateOne

from skep.errors import ConfigurationError, DiskFull, InvalidInput, Unavailable
from skep.streams import files
from skep.streams.csv import FORMULA_STARTS, Csv
from skep.streams.files import FileSink
from skep.streams.kafka import producer_settings
from skep.streams.mongo import operation_for
from skep.streams.ports import Record, Sink
from skep.streams.registry import KINDS, SinkKind, open_sink, secrets_hidden
from skep.streams.sink_options import CsvOptions, KafkaOptions
from skep.streams.sink_url import SinkUrl
from skep.streams.sql.column_kinds import check_name
from skep.testing.conformance.sink import pages, records

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "sinks.md"


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_every_kind_looks_the_same(kind: SinkKind) -> None:
    hints = get_type_hints(kind.options, include_extras=True)
    for field in kind.options.__struct_fields__:
        texts = [m.description for m in hints[field].__metadata__ if isinstance(m, Meta)]
        assert texts
        assert str(texts[0]).endswith(".")
    page = DOCS.read_text()
    assert f"\n## {kind.name}\n" in page
    section = page.split(f"\n## {kind.name}\n")[1].split("\n## ")[0]
    assert kind.example in section
    assert kind.promise in section
    assert [f for f in kind.options.__struct_fields__ if f"| `{f}` |" not in section] == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("out.txt", "no kind of sink"),
        ("ftp://host/x", "no sink speaks 'ftp'"),
        ("jsonl:", "path of a file"),
        ("jsonl:a.jsonl?colour=red", "colour"),
        ("csv:a.csv?separator=;;", "separator"),
        ("sqlite:a.db?columns=many", "columns"),
        ("sqlite:a.db?table=a;b", "cannot be a column"),
        ("postgresql:///db", "postgresql://HOST"),
        ("redis://host/0", "one of list="),
        ("redis://host/0?hash=h", "hash= needs key="),
        ("redis://host/0?list=a&colour=red", "colour"),
        ("kafka://host", "kafka://BROKER,BROKER/TOPIC"),
        ("mongodb://host", "mongodb://HOST/DATABASE"),
        ("https://host/?secret=NOT_THERE", "NOT_THERE holds no secret"),
        ("https://host/?batch=0", "batch"),
    ],
)
def test_a_url_that_means_nothing_is_a_sentence(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        open_sink(url, environment={})


@pytest.mark.parametrize(
    ("scheme", "module", "extra"),
    [
        ("kafka://host/topic", "confluent_kafka", "kafka"),
        ("mongodb://host/db", "pymongo", "mongo"),
        ("redis://host/0?list=a", "redis", "redis"),
        ("postgresql://host/db", "psycopg", "postgres"),
        ("mysql://host/db", "pymysql", "mysql"),
    ],
)
def test_a_missing_library_names_its_extra(
    scheme: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("skep.streams.")]:
        if name.rpartition(".")[2] in {"kafka", "mongo", "redis"}:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # as when it is not installed
    with pytest.raises(ConfigurationError, match=rf"pip install 'skep\[{extra}\]'"):
        open_sink(scheme)


def test_the_registry_imports_no_library() -> None:
    code = (
        "import sys, skep.streams.registry, skep.streams.sink_writer\n"
        "print([m for m in ('sqlalchemy', 'redis', 'confluent_kafka', 'pymongo', 'aiohttp')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pass@h/db?table=t&sslmode=x", "postgresql://me:***@h/db?sslmode=***"),
        ("https://h/hook?token=abc&batch=5", "https://h/***?token=***"),
        ("mongodb://a:b@h1,h2/db?key=x", "mongodb://a:***@h1,h2/db"),
        ("what:ever://me:pass@h", "what:..."),
        ("out.jsonl", "jsonl:out.jsonl"),
    ],
)
def test_people_never_see_a_password(url: str, shown: str) -> None:
    assert secrets_hidden(url) == shown


# -- files


async def keep(sink: Sink, told: list[Record]) -> int:
    """Open, write, close; the position that it had."""
    position = await sink.open()
    try:
        assert await sink.write(told) == []
    finally:
        await sink.close()
    return position


async def test_what_a_crash_left_behind_is_cut_off(tmp_path: Path) -> None:
    """The data reached the file, the position did not: the batch is told again."""
    path = tmp_path / "out.jsonl"
    await keep(open_sink(str(path)), pages(3))
    with path.open("ab") as file:
        file.write(b'{"url": "u4", "n": 4}\n{"url": "u')
    assert await keep(open_sink(str(path)), pages(5)) == 3
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [1, 2, 3, 4, 5]


async def test_a_file_that_was_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"n": 0}')
    await keep(open_sink(str(path)), pages(1))
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [0, 1]


async def test_a_file_that_was_removed_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    await keep(open_sink(str(path)), pages(3))
    path.unlink()
    assert await keep(open_sink(str(path)), pages(2)) == 0
    assert len(path.read_text().splitlines()) == 2


async def test_a_file_that_is_moved_away_while_we_write_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    sink = open_sink(str(path))
    await sink.open()
    await sink.write(pages(3))
    path.rename(tmp_path / "yesterday.jsonl")
    await sink.write(pages(2, first=4))
    await sink.close()
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [4, 5]


async def test_a_file_that_was_cut_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    await keep(open_sink(str(path)), pages(3))
    path.write_bytes(path.read_bytes()[:5])
    with pytest.raises(ConfigurationError, match="has 5 bytes"):
        await open_sink(str(path)).open()


async def test_two_runs_write_into_one_file_after_each_other(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for name in ("run-1", "run-2"):
        assert await keep(open_sink(str(path), name=name), pages(2)) == 0
    assert await keep(open_sink(str(path), name="run-1"), pages(3)) == 2
    assert len(path.read_text().splitlines()) == 5


async def test_two_writers_never_share_a_file(tmp_path: Path) -> None:
    first, second = (open_sink(str(tmp_path / "out.jsonl")) for _ in range(2))
    await first.open()
    with pytest.raises(Unavailable, match="another process"):
        await second.open()
    await first.close()
    assert await second.open() == 0
    await second.close()


async def test_a_full_disk_is_unavailable_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    sink = open_sink(str(path))
    await sink.open()
    await sink.write(pages(2))

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(files, "replace_state", no_space)
        with pytest.raises(DiskFull):
            await sink.write(pages(2, first=3))
    assert await sink.write(pages(2, first=3)) == []
    await sink.close()
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [1, 2, 3, 4]


async def test_a_folder_that_is_a_file_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(ConfigurationError):
        await open_sink(str(tmp_path / "a" / "out.jsonl")).open()


# -- cells


def cells_of(value: Any, **options: Any) -> list[str]:
    data, refused, _ = Csv(CsvOptions(**options)).encode(
        [Record(1, {"a": value, "b": "x"})], (), at_start=False
    )
    assert refused == []
    return next(csv.reader(io.StringIO(data.decode(), newline="")))


@given(st.text())
def test_no_cell_is_a_formula(text: str) -> None:
    """Fault 70: whatever a page says, a spreadsheet shows it and does not calculate it."""
    cell = cells_of(text)[0]
    assert not cell.startswith(FORMULA_STARTS)
    assert cell in {text, f"'{text}"}


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (-5, "-5"),
        (-0.5, "-0.5"),
        ("-5", "'-5"),
        ("+1", "'+1"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        (True, "true"),
        (None, ""),
        ([1, "=x"], '[1,"=x"]'),
    ],
)
def test_numbers_stay_numbers_and_text_is_escaped(value: Any, cell: str) -> None:
    """Fault 70."""
    assert cells_of(value)[0] == cell


def test_escaping_can_be_switched_off() -> None:
    assert cells_of("=1", escape=False)[0] == "=1"


async def test_the_header_is_the_first_records_and_others_must_fit(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    sink = open_sink(str(path))
    await sink.open()
    assert await sink.write(records({"=a": 1, "b": 2}, {"b": 3})) == []
    await sink.close()
    again = open_sink(str(path))
    await again.open()
    refused = await again.write(records({"b": 4}, {"c": 5}, first=3))
    assert [(one.position, "'c'" in one.reason) for one in refused] == [(4, True)]
    assert await again.write(records({"b": 4}, first=3)) == []
    await again.close()
    assert path.read_bytes() == b"'=a,b\r\n1,2\r\n,3\r\n,4\r\n"


async def test_chosen_fields_leave_others_out(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    await keep(open_sink(f"csv:{path}?fields=b,a&separator=;"), records({"a": 1, "x": 9, "b": 2}))
    assert path.read_bytes() == b"b;a\r\n2;1\r\n"


def test_a_sink_of_a_file_is_the_contracts() -> None:
    sink: Sink = FileSink(SinkUrl("csv", path="a.csv"), "", Csv(CsvOptions()))
    assert sink.describe() == "csv:a.csv"


# -- names of columns


@given(st.text(max_size=80))
def test_a_name_that_passes_holds_nothing_that_ends_a_name(name: str) -> None:
    try:
        assert check_name(name) == name
    except InvalidInput:
        return
    assert not set(name) & set("\"'`;()[]{}%:\\?!\0\n\r\t")
    assert 0 < len(name.encode()) <= 60


# -- MongoDB: the operations only, no server was asked


def test_mongo_updates_by_key() -> None:
    made = operation_for(Record(5, {"url": "u", "n": 1}), "url", "")
    expected = UpdateOne({"url": "u"}, {"$set": {"url": "u", "n": 1}}, upsert=True)
    assert made == expected


@pytest.mark.parametrize(("name", "identity"), [("", 5), ("run-1", "run-1/5")])
def test_mongo_names_a_document_by_its_position(name: str, identity: object) -> None:
    made = operation_for(Record(5, {"n": 1}), "", name)
    assert made == ReplaceOne({"_id": identity}, {"n": 1, "_id": identity}, upsert=True)


def test_mongo_keeps_an_identity_that_is_there() -> None:
    made = operation_for(Record(5, {"_id": "mine"}), "", "")
    assert made == ReplaceOne({"_id": "mine"}, {"_id": "mine"}, upsert=True)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"$where": 1}, "cannot be a field"),
        ({"a.b": 1}, "cannot be a field"),
        ({"": 1}, "cannot be a field"),
        ({"n": [{"m": 2**63}]}, "64 bits"),
        ({"t": "\ud800"}, "cannot be written"),
    ],
)
def test_mongo_refuses_what_no_document_holds(data: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        operation_for(Record(1, data), "", "")


# -- Kafka: what its client is told


def test_kafka_waits_for_all_and_logs_in_only_with_a_user() -> None:
    plain = producer_settings(SinkUrl("kafka", "a,b:1", "/t"), KafkaOptions())
    assert (plain["bootstrap.servers"], plain["acks"]) == ("a,b:1", "all")
    assert plain["enable.idempotence"] is True
    assert plain["security.protocol"] == "PLAINTEXT"
    assert not [name for name in plain if name.startswith("sasl")]
    secure = producer_settings(SinkUrl("kafka", "me:p%40ss@a", "/t"), KafkaOptions(tls=True))
    assert secure["security.protocol"] == "SASL_SSL"
    assert (secure["sasl.username"], secure["sasl.password"]) == ("me", "p@ss")


@pytest.mark.parametrize(
    "path",
    ["/etc/x.jsonl", "../x.jsonl", "a/../../x.jsonl", "///tmp/x.jsonl", "%2e%2e/x.jsonl", "."],
)
def test_a_confined_file_stays_in_its_folder(path: str, tmp_path: Path) -> None:
    """Fault 51: no way out by a path."""
    with pytest.raises(ConfigurationError, match=r"below the center's folder|path of a file"):
        open_sink(f"jsonl:{path}", folder=tmp_path / "items")


async def test_a_confined_file_does_not_follow_links_out(tmp_path: Path) -> None:
    """Fault 51: nor by a link; what is inside is written there."""
    items = tmp_path / "items"
    items.mkdir()
    (items / "out").symlink_to(tmp_path)
    with pytest.raises(ConfigurationError, match="below the center's folder"):
        open_sink("jsonl:out/x.jsonl", folder=items)
    sink = open_sink("jsonl:a/x.jsonl", folder=items)
    await sink.open()
    await sink.close()
    assert (items / "a" / "x.jsonl").exists()
