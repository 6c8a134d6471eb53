"""Every line as JSON, to a stream and to files that are rotated."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from skep.logs.export import FileExport, StreamExport
from skep.model.logs import LogLine, LogSourceKind


def line(text: str) -> LogLine:
    return LogLine(LogSourceKind.APP, "shop", "r", "home", 20, 1.5, text, {"n": 1}, 1, 7)


def test_a_line_as_json() -> None:
    stream = io.BytesIO()
    StreamExport(stream).write([line("a\nb"), line("蜂巢")])
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert second["text"] == "蜂巢"
    assert first == {
        "kind": "app",
        "source": "shop",
        "run": "r",
        "agent": "home",
        "level": 20,
        "time": 1.5,
        "text": "a\nb",
        "fields": {"n": 1},
        "token": 1,
        "offset": 7,
    }


def test_a_closed_pipe_is_counted() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as stream:
        export = StreamExport(stream)
        export.write([line("a"), line("b")])
    assert export.failed == 2


def texts(path: Path) -> list[str]:
    return [json.loads(one)["text"] for one in path.read_text().splitlines()]


def test_files_are_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    export = FileExport(path, limit=300, files=3)
    for number in range(20):
        export.write([line(f"{number}")])
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["export.jsonl", "export.jsonl.1", "export.jsonl.2"]
    kept = [*texts(tmp_path / names[2]), *texts(tmp_path / names[1]), *texts(path)]
    assert kept == [str(number) for number in range(20 - len(kept), 20)]
    assert len(kept) < 20


def test_one_call_fills_several_files(tmp_path: Path) -> None:
    export = FileExport(tmp_path / "e", limit=300, files=50)
    export.write([line(f"{number}") for number in range(20)])
    found = sorted(tmp_path.iterdir(), key=lambda path: int(path.suffix[1:] or 0), reverse=True)
    assert [text for path in found for text in texts(path)] == [str(n) for n in range(20)]
    assert all(path.stat().st_size < 300 + 200 for path in found)


def test_a_single_file_begins_again(tmp_path: Path) -> None:
    export = FileExport(tmp_path / "e", limit=1, files=1)
    export.write([line("a")])
    export.write([line("b")])
    assert texts(tmp_path / "e") == ["b"]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_disk_that_refuses_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = FileExport(tmp_path / "e", limit=10**6, files=2)
    export.write([line("a")])
    real = os.write

    def half(file: int, data: memoryview) -> int:
        if len(data) > 9:
            return real(file, data[:9])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    export.write([line("b")])
    monkeypatch.undo()
    assert export.failed == 1
    assert texts(tmp_path / "e") == ["a"]
