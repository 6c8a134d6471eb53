"""From a URL to an archive; called by the assembly of a center. It opens nothing yet."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from skep.archive.folder import FolderArchive
from skep.archive.frames import FrameMaker
from skep.archive.ports import Archive
from skep.errors import ConfigurationError


def open_archive(
    url: str, writer: str, segment_bytes: int, maker: FrameMaker | None = None
) -> Archive:
    """The archive at a path or file: URL; raises ConfigurationError for anything else."""
    return FolderArchive(_folder_of(url), writer, segment_bytes, maker)


def _folder_of(url: str) -> Path:
    scheme, found, _ = url.partition(":")
    if not url:
        raise ConfigurationError("the archive needs a folder")
    if not found or "/" in scheme:
        return Path(url)
    parts = urlsplit(url)
    if parts.scheme != "file":
        raise ConfigurationError(
            f"the archive cannot be at {parts.scheme}: only folders are supported in this version."
        )
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise ConfigurationError("a file: URL of the archive is written file:///PATH.")
    return Path(unquote(parts.path))
