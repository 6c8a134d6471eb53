"""Sinks whose servers are not there."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import pytest

from skep.errors import Unavailable
from skep.runtime.clock import SystemClock
from skep.spiders.session.item_sinks import SinkWriters
from skep.streams.registry import open_sink
from skep.testing.grounds.centers import running_center
from skep.testing.polling import until
from skep.wire.client import CenterClient
from skep.wire.client.api import CenterApi

NOBODY = "kafka://127.0.0.1:9/quotes"


async def test_a_broker_that_is_away_is_told_soon_and_without_noise(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """U10: the client's own lines, hundreds in a second, are not shown."""
    sink, began = open_sink(NOBODY), time.monotonic()
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        await sink.open()
    await sink.close()
    assert time.monotonic() - began < 20
    assert caplog.records == []
    assert capfd.readouterr().err == ""


async def test_a_run_goes_on_while_its_broker_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """U10: `skep run -o kafka://...` without a broker says one clear line and tries again."""
    async with (
        running_center(tmp_path) as center,
        CenterClient([center.url], center.admin.token, SystemClock(), Random(1)) as client,
    ):
        output_sinks = SinkWriters(
            CenterApi(client.transport), "run", tmp_path, SystemClock(), Random(1)
        )
        await output_sinks.open([NOBODY])
        await until(lambda: _lines(caplog))
        await asyncio.sleep(2.0)
        (line,) = _lines(caplog)
        assert "kafka://127.0.0.1:9/quotes" in line
        output_sinks.stop()  # the end of a run would wait for it
        await output_sinks.finish()


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [one for one in caplog.records if one.name.startswith("skep.streams")]
    return [one.getMessage() for one in records]
