"""The tabs of the system's pages."""

from __future__ import annotations

from skep.portal.show.details import Tab

_PATHS = {"health": "/system", "storage": "/system/storage", "audit": "/system/audit"}


def tabs_of(open_tab: str) -> list[Tab]:
    return [Tab(f"system.tab_{name}", path, name == open_tab) for name, path in _PATHS.items()]
