"""An empty place for log pieces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep.store.ports.logs import LogPieces
from skep.testing.doubles.log_pieces import SqliteLogPieces


@pytest.fixture
def log_pieces() -> Iterator[LogPieces]:
    place = SqliteLogPieces(":memory:")
    yield place
    place.close()
