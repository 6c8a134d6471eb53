"""The name of a center: created at its first start, stored in `center.name`, part of its segments.

An unreadable file is replaced only if no archive segment has the lost name.
"""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

from skep.archive.registry import folder_of, is_s3
from skep.archive.segments import is_writer, writers_in
from skep.errors import ConfigurationError
from skep.runtime.clock import Clock
from skep.runtime.files import UnreadableFile, read_line, write_durably
from skep.runtime.ids import new_id
from skep.settings import Settings

log = logging.getLogger(__name__)

FILE = "center.name"
_S3_LOCK = "archive-*.lock"


def center_name(settings: Settings, clock: Clock, rng: Random) -> str:
    """The name of this data folder's center; raises ConfigurationError, which names the file."""
    file = Path(settings.data) / FILE
    if file.exists():
        try:
            return _read(file)
        except UnreadableFile as error:
            _check_replaceable(settings, error)
            log.warning("%s; created a new name, because no archive segment has one", error)
    name = new_id("center", clock.now(), rng)
    write_durably(file, f"{name}\n".encode())
    return name


def _read(file: Path) -> str:
    name = read_line(file)
    if not is_writer(name):
        raise UnreadableFile(f"{file} does not contain a center's name")
    return name


def _check_replaceable(settings: Settings, error: UnreadableFile) -> None:
    names = _names_in_use(settings)
    if names:
        raise ConfigurationError(
            f"{error}. The archive has segments of {', '.join(names)}: write the name of this "
            "center into the file, then start again"
        ) from error


def _names_in_use(settings: Settings) -> list[str]:
    """Names that segments of this center may have."""
    if is_s3(settings.archive_url):
        locks = Path(settings.data).glob(_S3_LOCK)
        return sorted(path.stem.removeprefix("archive-") for path in locks)
    return writers_in(folder_of(settings.archive_url))
