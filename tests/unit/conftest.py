"""What several files of unit tests stand on; a file may put its own in the place of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.settings import StoreSettings
from skep.store.open_store import open_store
from skep.store.ports import Store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """An empty one on SQLite."""
    opened = open_store(f"sqlite:///{tmp_path / 'skep.db'}", StoreSettings())
    await opened.open()
    yield opened
    await opened.close()
