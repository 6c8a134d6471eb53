"""The logs bench: equal work for both sides, planted words that are found, honest verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import logs
from bench.log_corpus import ABSENT, CHINESE, TIMES, WORD, Corpus
from bench.log_peers import Fts5, append_synced, grep
from skep.logs.line_format import decode_entries, is_safe


def test_the_corpus_is_the_same_for_a_seed_and_has_what_is_planted() -> None:
    lines = list(Corpus(7, 3000).lines())
    assert lines == list(Corpus(7, 3000).lines())
    assert lines != list(Corpus(8, 3000).lines())
    texts = [text for _, text in lines]
    found = [sum(word in text for text in texts) for word in (WORD, CHINESE, ABSENT)]
    assert found == [TIMES, TIMES, 0]
    assert 100 < sum(len(text.encode()) for text in texts) / len(texts) < 150


def test_batches_hold_every_line_once_with_growing_offsets() -> None:
    batches = list(logs.batches_of(5000, 300))
    expected = [text for _, text in Corpus(1, 5000).lines()]
    assert [text for _, texts in batches for text in texts] == expected
    ends: dict[str, int] = {}
    for batch, texts in batches:
        entries = decode_entries(batch.lines)
        assert [entry.text for entry in entries] == texts
        assert all(map(is_safe, entries))
        assert batch.first == ends.get(batch.source.name, 0)
        ends[batch.source.name] = batch.first + len(texts)


def test_ours_and_the_floor_take_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "TAKEN", 2000)
    batches = [batch for batch, _ in logs.batches_of(2000, 100)]
    assert logs.ours(batches)["rate"] > 0
    assert logs.floor(batches)["rate"] > 0
    with pytest.raises(RuntimeError, match="lines that were stored"):
        logs.ours(batches[:-1])


def test_the_floor_writes_every_byte(tmp_path: Path) -> None:
    append_synced(tmp_path / "plain", [b"a", b"b"])
    assert (tmp_path / "plain").read_bytes() == b"a\nb\n"


def test_a_search_of_a_small_corpus() -> None:
    told = logs.searched(20_000)
    assert told["lines"] == 20_000
    assert set(told["ours"]) >= {"word", "chinese", "absent", "pattern", "number", "disk_mb"}
    assert told["ours"]["disk_mb"] < told["texts_mb"] / 2
    assert set(told["grep"]) == {"disk_mb", WORD, CHINESE, ABSENT}


def test_peers_find_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "plain"
    path.write_text(f"one {WORD}\ntwo\n")
    with pytest.raises(RuntimeError, match="grep found"):
        grep(path, [(WORD, 2)])
    fts = Fts5(tmp_path / "fts.db")
    fts.add([f"one {WORD}", "two"])
    assert fts.told([WORD, CHINESE])["lines"] == 2


@pytest.mark.parametrize(
    ("name", "key", "seconds"), [("word", "first", 1.1), ("absent", "all", 10.1)]
)
def test_a_slow_search_does_not_hold_the_bars(name: str, key: str, seconds: float) -> None:
    told: dict[str, Any] = {
        "ours": {one: {"first": 1.0, "all": 10.0} for one in ("word", "chinese", "absent")}
    }
    assert logs.within(told)
    told["ours"][name][key] = seconds
    assert not logs.within(told)
