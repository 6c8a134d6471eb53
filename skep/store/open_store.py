"""Opens a store by URL. Run by centers only.

SQLAlchemy is imported when a store is opened, never before. Opening does not connect.
"""

from __future__ import annotations

from skep.settings import StoreSettings
from skep.store.ports import Store


def known_schemas() -> set[str]:
    """Schema versions that this version can migrate."""
    from skep.store.sql.engine.migrate import known_versions

    return known_versions()


def open_store(url: str, settings: StoreSettings) -> Store:
    """The store behind a URL, not yet connected; raises ConfigurationError."""
    from skep.store.sql.store import SqlStore

    return SqlStore(url, settings.readers, settings.group_limit)
