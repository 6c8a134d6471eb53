"""Every setting of every process, one file per room, each with one line of documentation.

Later sources win: defaults, a TOML file, the environment (`SKEP_ROOM_FIELD`), flags. A
secret can be given as `SKEP_ROOM_FIELD_FILE`, the path of a file that holds it. The
reference page in `docs/reference/settings.md` is generated from these structs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from skep.errors import ConfigurationError
from skep.runtime.settings_sources import BadSource, from_environment, put, read_toml
from skep.runtime.value_errors import explained
from skep.settings.access import AccessSettings
from skep.settings.agent import AgentSettings
from skep.settings.archive import ArchiveSettings
from skep.settings.bus import BusSettings
from skep.settings.center import CenterSettings
from skep.settings.egress import EgressSettings
from skep.settings.jobs import JobsSettings
from skep.settings.keep import KeepSettings
from skep.settings.lanes import LaneSettings
from skep.settings.logs import LogSettings
from skep.settings.monitoring import MonitoringSettings
from skep.settings.notices import NoticeSettings
from skep.settings.sites import SiteSettings
from skep.settings.store import StoreSettings

__all__ = [
    "PREFIX",
    "SECTIONS",
    "AccessSettings",
    "AgentSettings",
    "ArchiveSettings",
    "BusSettings",
    "CenterSettings",
    "EgressSettings",
    "JobsSettings",
    "KeepSettings",
    "LaneSettings",
    "LogSettings",
    "MonitoringSettings",
    "NoticeSettings",
    "Settings",
    "SiteSettings",
    "StoreSettings",
    "documented",
    "load",
]

PREFIX = "SKEP"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of all rooms."""

    data: Annotated[str, Meta(description="Folder for everything that Skep stores.")] = "skep-data"
    center: CenterSettings = CenterSettings()
    store: StoreSettings = StoreSettings()
    bus: BusSettings = BusSettings()
    archive: ArchiveSettings = ArchiveSettings()
    lanes: LaneSettings = LaneSettings()
    agent: AgentSettings = AgentSettings()
    egress: EgressSettings = EgressSettings()
    sites: SiteSettings = SiteSettings()
    jobs: JobsSettings = JobsSettings()
    keep: KeepSettings = KeepSettings()
    notices: NoticeSettings = NoticeSettings()
    logs: LogSettings = LogSettings()
    access: AccessSettings = AccessSettings()
    monitoring: MonitoringSettings = MonitoringSettings()

    @property
    def store_url(self) -> str:
        """Raises ConfigurationError for a data folder whose name a URL cannot hold."""
        if not self.store.url and "?" in self.data:
            raise ConfigurationError(
                f"the data folder {self.data!r} has a '?' in its name, which begins the options of"
                " a database URL; choose another folder, or set store.url"
            )
        return self.store.url or f"sqlite:///{Path(self.data) / 'skep.db'}"

    @property
    def archive_url(self) -> str:
        return self.archive.url or str(Path(self.data) / "archive")


SECTIONS = tuple(name for name in Settings.__struct_fields__ if name != "data")


def documented() -> Iterator[tuple[str, str, object, str]]:
    """(room, field, default, description) of every setting, for docs, flags and tests."""
    defaults = Settings()
    for room in SECTIONS:
        struct = getattr(defaults, room)
        hints = get_type_hints(type(struct), include_extras=True)
        for field in struct.__struct_fields__:
            yield room, field, getattr(struct, field), _description(hints[field])


def _description(hint: Any) -> str:
    metas = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Meta)]
    return next((m.description for m in metas if m.description), "")


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Merge all sources; raises ConfigurationError that names the field and the source.

    `flags` uses dotted names: `{"center.port": 8420, "data": "x"}`; None means not given.
    """
    merged: dict[str, Any] = {}
    try:
        merged = read_toml(file) if file else {}
        for name, text in from_environment(environment or {}, _variables()):
            if text or name != "data":  # an empty folder name counts as not given
                put(merged, name, _parse(text, name))
        for name, value in (flags or {}).items():
            if value is not None:
                put(merged, name, value)
        return msgspec.convert(merged, Settings, strict=False)
    except BadSource as error:
        raise ConfigurationError(str(error)) from error
    except msgspec.ValidationError as error:
        text = explained(error, merged, Settings)
        raise ConfigurationError(f"{text}. See docs/reference/settings.md.") from error


def _variables() -> dict[str, str]:
    known = {
        f"{PREFIX}_{room}_{field}".upper(): f"{room}.{field}" for room, field, *_ in documented()
    }
    return {f"{PREFIX}_DATA": "data", **known}


def _parse(text: str, name: str) -> Any:
    room, _, field = name.rpartition(".")
    default = getattr(getattr(Settings(), room), field) if room else ""
    return [part for part in text.split(",") if part] if isinstance(default, tuple) else text
