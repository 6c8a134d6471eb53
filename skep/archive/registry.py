"""Creates an archive from a URL; called by the assembly of a center. It opens nothing yet.

A backend is imported only when its URL is used, so that a folder needs no S3 client.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from skep.archive.folder import FolderArchive
from skep.archive.frames import FrameMaker
from skep.archive.ports import Archive
from skep.errors import ConfigurationError
from skep.settings import Settings

if TYPE_CHECKING:
    from skep.archive.bucket import Bucket


def open_archive(
    url: str,
    writer: str,
    segment_bytes: int,
    maker: FrameMaker | None = None,
    *,
    home: Path = Path(),
    login: str = "",
) -> Archive:
    """The archive at a path, a file: or an s3: URL; raises ConfigurationError.

    `home` is a folder of this center alone, for its lock; `login` holds the credentials of S3,
    KEY:SECRET; "" takes those of the environment.
    """
    if not is_s3(url):
        return FolderArchive(folder_of(url), writer, segment_bytes, maker)
    bucket = open_bucket(url, login)
    from skep.archive.s3 import S3Archive

    return S3Archive(bucket, writer, segment_bytes, home, maker)


def is_s3(url: str) -> bool:
    return url.startswith("s3:")


def open_bucket(url: str, login: str = "") -> Bucket:
    """The bucket that an s3: URL names; nothing is called yet."""
    try:
        from skep.archive.bucket import Bucket, place_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "obstore":
            raise
        raise ConfigurationError(
            "an archive in S3 needs its client: pip install 'skep[s3]'"
        ) from error
    return Bucket(place_of(url), _key_and_secret(login) if login else None)


def login_of(settings: Settings) -> str:
    """KEY:SECRET of S3, read from its file; "" = take it from the environment."""
    if not settings.archive.secret:
        return ""
    file = Path(settings.data) / "secrets" / Path(settings.archive.secret).name
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"archive.secret: cannot read {file}") from error


def _key_and_secret(login: str) -> tuple[str, str]:
    key, found, secret = login.strip().partition(":")
    if not found or not key or not secret:
        raise ConfigurationError("archive.secret: the file must contain KEY:SECRET in one line")
    return key, secret


def folder_of(url: str) -> Path:
    """The folder at a path or a file: URL; raises ConfigurationError for anything else."""
    scheme, found, _ = url.partition(":")
    if not url:
        raise ConfigurationError("archive.url is empty; set it to a folder")
    if not found or "/" in scheme:
        return Path(url)
    parts = urlsplit(url)
    if parts.scheme != "file":
        raise ConfigurationError(
            f"archive.url: {parts.scheme} is not known; use a folder or s3://BUCKET/FOLDER."
        )
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise ConfigurationError("archive.url: write a file URL as file:///PATH.")
    return Path(unquote(parts.path))
